// Texts by client as sequences of token ids for next-token prediction. Texts are
// kept as 4 bytes a token until Write, which builds the vocabulary from the
// training part, most frequent first:
//   0 PAD, 1..V the tokens, V+1 UNK, V+2 BOS, V+3 EOS (TFF's order).
// A text becomes BOS tokens EOS; a row is x = ids[i .. i+length) with the next ids
// as y, both padded with PAD, which is no target. Not thread-safe.
#ifndef LEEWAY_CLIENT_IMPORT_SEQUENCES_H_
#define LEEWAY_CLIENT_IMPORT_SEQUENCES_H_

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/import/federation_writer.h"

namespace leeway {

struct SequenceOptions {
  bool characters = false;  // tokens are UTF-8 characters; otherwise words between spaces
  uint64_t vocabulary = 0;  // most tokens to keep; 0: all
  uint64_t length = 20;     // of a row
  bool split = true;        // long texts give several rows; otherwise the first alone
  Json ToJson() const;
};

class SequenceBuilder {
 public:
  explicit SequenceBuilder(const SequenceOptions& options) : options_(options) {}

  // The tokens of a text as numbers that only this builder understands.
  std::vector<uint32_t> Tokenize(absl::string_view text);
  // Texts without tokens are counted and left out.
  void Add(const std::string& client, Part part, const std::vector<uint32_t>& tokens);
  // Writes all rows and vocabulary.txt; adds "vocabulary" and counts to `description`.
  absl::Status Write(FederationWriter* writer, Json* description);

 private:
  struct Texts {
    std::vector<uint32_t> tokens;  // of all texts, one after the other
    std::vector<size_t> ends;      // where each text ends in `tokens`
  };
  struct ClientTexts {
    Texts parts[2];
    uint64_t empty = 0;
  };

  // Gives tokens their final ids; returns the words in that order.
  std::vector<std::string> BuildVocabulary();
  // Appends the rows of one text.
  void AppendRows(const uint32_t* begin, const uint32_t* end, Part part, std::vector<int32_t>* x,
                  std::vector<int32_t>* y);
  absl::Status WritePart(const std::string& client, Part part, const Texts& texts,
                         FederationWriter* writer);
  Json Describe() const;

  const SequenceOptions options_;
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<std::string> words_;  // by number
  std::vector<int32_t> ids_;        // by number, from BuildVocabulary
  int32_t unknown_id_ = 1;          // after the last token of the vocabulary
  std::map<std::string, ClientTexts> clients_;
  uint64_t truncated_ = 0;
  uint64_t tokens_[2] = {0, 0};
  uint64_t unknown_[2] = {0, 0};
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_SEQUENCES_H_
