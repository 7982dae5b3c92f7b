// The dictionary at the head of a .npy file. Internal to npy.cc.
#ifndef LEEWAY_COMMON_NPY_HEADER_H_
#define LEEWAY_COMMON_NPY_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace leeway {

// The three entries of a header's dictionary, as written.
struct NpyHeader {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<uint64_t>> shape;
};

// Reads the one Python literal that .npy headers consist of:
//   {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }
// Nothing else is understood, so nothing else can be smuggled in.
class NpyHeaderReader {
 public:
  explicit NpyHeaderReader(absl::string_view text) : rest_(text) {}

  std::optional<NpyHeader> Read() {
    NpyHeader header;
    if (!Take('{')) return std::nullopt;
    while (!Take('}')) {
      if (!Entry(header)) return std::nullopt;
      if (Take(',')) continue;
      if (!Take('}')) return std::nullopt;
      break;
    }
    Blank();
    const bool complete = header.descr && header.fortran_order && header.shape;
    if (!rest_.empty() || !complete) return std::nullopt;
    return header;
  }

 private:
  void Blank() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
  }

  bool Take(char c) {
    Blank();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool Word(absl::string_view word) {
    Blank();
    if (!absl::StartsWith(rest_, word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  // 'text' or "text", without escapes.
  bool String(std::string& out) {
    Blank();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return false;
    const size_t end = rest_.find(rest_[0], 1);
    if (end == absl::string_view::npos) return false;
    out = std::string(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return out.find('\\') == std::string::npos;
  }

  bool Number(uint64_t& out) {
    Blank();
    size_t digits = 0;
    out = 0;
    for (; digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '9'; ++digits) {
      if (digits == 19) return false;  // 10^19 - 1 is the last that surely fits
      out = out * 10 + static_cast<uint64_t>(rest_[digits] - '0');
    }
    rest_.remove_prefix(digits);
    return digits > 0;
  }

  // (), (3,), (3, 4) or (3, 4,), but not (3), which is no tuple.
  bool Tuple(std::vector<uint64_t>& out) {
    if (!Take('(')) return false;
    bool comma = true;
    while (!Take(')')) {
      uint64_t extent;
      if (!comma || !Number(extent)) return false;
      out.push_back(extent);
      comma = Take(',');
    }
    return comma || out.size() != 1;
  }

  bool Entry(NpyHeader& header) {
    std::string key;
    if (!String(key) || !Take(':')) return false;
    if (key == "descr" && !header.descr) return String(header.descr.emplace());
    if (key == "shape" && !header.shape) return Tuple(header.shape.emplace());
    if (key != "fortran_order" || header.fortran_order) return false;
    header.fortran_order = Word("True");
    return *header.fortran_order || Word("False");
  }

  absl::string_view rest_;
};

}  // namespace leeway

#endif  // LEEWAY_COMMON_NPY_HEADER_H_
