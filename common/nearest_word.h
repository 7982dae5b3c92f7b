// The word that a mistyped one was meant to be.
#ifndef LEEWAY_COMMON_NEAREST_WORD_H_
#define LEEWAY_COMMON_NEAREST_WORD_H_

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

namespace leeway {

// Number of letters to add, remove or change (Levenshtein).
inline size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

// The known word that `word` was probably meant to be: the first that begins with it, else the one
// with the fewest letters changed; empty if none is near.
inline std::string NearestWord(const std::string& word, const std::vector<std::string>& known) {
  // "--client" is meant to be "--client-column" rather than "--columns". Two dashes and one letter
  // begin too much.
  const auto longer = std::find_if(known.begin(), known.end(), [&](const std::string& one) {
    return word.size() >= 4 && one.rfind(word, 0) == 0;
  });
  if (longer != known.end()) return *longer;
  const auto nearest = std::min_element(
      known.begin(), known.end(),
      [&](const auto& a, const auto& b) { return EditDistance(word, a) < EditDistance(word, b); });
  if (nearest == known.end()) return "";
  return EditDistance(word, *nearest) <= std::max<size_t>(2, nearest->size() / 2) ? *nearest : "";
}

}  // namespace leeway

#endif  // LEEWAY_COMMON_NEAREST_WORD_H_
