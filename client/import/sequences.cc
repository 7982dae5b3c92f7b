#include "client/import/sequences.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/import/client_name.h"
#include "client/import/progress.h"
#include "common/status.h"
#include "common/utf8.h"

namespace leeway {

Json SequenceOptions::ToJson() const {
  return {{"tokens", characters ? "characters" : "words"},
          {"vocabulary", vocabulary},
          {"sequence", length},
          {"long_texts", split ? "split" : "truncate"}};
}

std::vector<uint32_t> SequenceBuilder::Tokenize(absl::string_view text) {
  std::vector<uint32_t> tokens;
  for (size_t i = 0; i < text.size();) {
    size_t length = 0;
    if (options_.characters) {
      length = std::max<size_t>(1, Utf8SequenceLength(text.substr(i)));
    } else {
      const size_t space = text.find(' ', i);
      length = std::min(space, text.size()) - i;
    }
    if (length > 0) {
      const auto [entry, fresh] = numbers_.try_emplace(std::string(text.substr(i, length)),
                                                       static_cast<uint32_t>(words_.size()));
      if (fresh) words_.push_back(entry->first);
      tokens.push_back(entry->second);
    }
    i += options_.characters ? length : length + 1;
  }
  return tokens;
}

void SequenceBuilder::Add(const std::string& client, Part part,
                          const std::vector<uint32_t>& tokens) {
  ClientTexts& entry = clients_[client];
  if (tokens.empty()) {
    ++entry.empty;
    return;
  }
  Texts& texts = entry.parts[static_cast<size_t>(part)];
  texts.tokens.insert(texts.tokens.end(), tokens.begin(), tokens.end());
  texts.ends.push_back(texts.tokens.size());
}

std::vector<std::string> SequenceBuilder::BuildVocabulary() {
  std::vector<uint64_t> counts(words_.size(), 0);
  for (const auto& [name, client] : clients_) {
    for (uint32_t token : client.parts[0].tokens) ++counts[token];
  }
  std::vector<uint32_t> order;
  for (uint32_t token = 0; token < counts.size(); ++token) {
    if (counts[token] > 0) order.push_back(token);
  }
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return counts[a] != counts[b] ? counts[a] > counts[b] : words_[a] < words_[b];
  });
  if (options_.vocabulary > 0 && order.size() > options_.vocabulary) {
    order.resize(options_.vocabulary);
  }
  unknown_id_ = static_cast<int32_t>(order.size()) + 1;
  ids_.assign(words_.size(), unknown_id_);
  std::vector<std::string> vocabulary;
  for (uint32_t token : order) {
    vocabulary.push_back(words_[token]);
    ids_[token] = static_cast<int32_t>(vocabulary.size());
  }
  return vocabulary;
}

void SequenceBuilder::AppendRows(const uint32_t* begin, const uint32_t* end, Part part,
                                 std::vector<int32_t>* x, std::vector<int32_t>* y) {
  std::vector<int32_t> ids{unknown_id_ + 1};
  for (const uint32_t* token = begin; token != end; ++token) {
    ids.push_back(ids_[*token]);
    if (ids.back() == unknown_id_) ++unknown_[static_cast<size_t>(part)];
  }
  tokens_[static_cast<size_t>(part)] += ids.size() - 1;
  ids.push_back(unknown_id_ + 2);
  const size_t length = options_.length;
  for (size_t start = 0; start + 1 < ids.size(); start += length) {
    if (start > 0 && !options_.split) {
      ++truncated_;
      break;
    }
    const size_t targets = std::min(length, ids.size() - 1 - start);
    x->insert(x->end(), &ids[start], &ids[start] + targets);
    y->insert(y->end(), &ids[start + 1], &ids[start + 1] + targets);
    x->resize(x->size() + length - targets, 0);
    y->resize(y->size() + length - targets, 0);
  }
}

absl::Status SequenceBuilder::WritePart(const std::string& client, Part part, const Texts& texts,
                                        FederationWriter* writer) {
  std::vector<int32_t> x;
  std::vector<int32_t> y;
  size_t begin = 0;
  for (size_t end : texts.ends) {
    AppendRows(&texts.tokens[begin], texts.tokens.data() + end, part, &x, &y);
    begin = end;
  }
  const uint64_t rows = x.size() / options_.length;
  return writer->Append(client, part, RowsOf(x, rows, {options_.length}),
                        RowsOf(y, rows, {options_.length}));
}

Json SequenceBuilder::Describe() const {
  Json json;
  json["size"] = unknown_id_ + 3;
  json["file"] = "vocabulary.txt";
  json["order"] = absl::StrCat("0 PAD (no target), 1 to ", unknown_id_ - 1,
                               " tokens by falling frequency in the training part, ", unknown_id_,
                               " UNK, ", unknown_id_ + 1, " BOS, ", unknown_id_ + 2, " EOS");
  json["pad"] = 0;
  json["unk"] = unknown_id_;
  json["bos"] = unknown_id_ + 1;
  json["eos"] = unknown_id_ + 2;
  json["tokens"] = {{"train", tokens_[0]}, {"test", tokens_[1]}};
  json["unknown_tokens"] = {{"train", unknown_[0]}, {"test", unknown_[1]}};
  if (!options_.split) json["truncated_texts"] = truncated_;
  return json;
}

absl::Status SequenceBuilder::Write(FederationWriter* writer, Json* description) {
  if (options_.length == 0) return absl::InvalidArgumentError("--sequence must be at least 1");
  std::string lines = "<pad>\n";
  for (const std::string& word : BuildVocabulary()) {
    absl::StrAppend(
        &lines,
        absl::StrReplaceAll(word, {{"\\", "\\\\"}, {"\n", "\\n"}, {"\r", "\\r"}, {"\t", "\\t"}}),
        "\n");
  }
  absl::StrAppend(&lines, "<unk>\n<bos>\n<eos>\n");
  LEEWAY_RETURN_IF_ERROR(writer->WriteFile("vocabulary.txt", lines));
  writer->SetVocabulary(static_cast<uint64_t>(unknown_id_) + 3);
  Progress progress("writing", "clients", clients_.size());
  uint64_t empty_texts = 0;
  uint64_t empty_clients = 0;
  for (const auto& [name, client] : clients_) {
    empty_texts += client.empty;
    if (client.parts[0].ends.empty() && client.parts[1].ends.empty()) ++empty_clients;
    for (Part part : {Part::kTrain, Part::kTest}) {
      const Texts& texts = client.parts[static_cast<size_t>(part)];
      if (texts.ends.empty()) continue;
      LEEWAY_RETURN_IF_ERROR(WritePart(name, part, texts, writer));
    }
    progress.Step();
  }
  (*description)["vocabulary"] = Describe();
  (*description)["skipped"]["empty_texts"] = empty_texts;
  (*description)["skipped"]["clients_without_text"] = empty_clients;
  return absl::OkStatus();
}

}  // namespace leeway
