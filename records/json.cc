#include "records/json.h"

#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/utf8.h"

namespace leeway {
namespace {

void AppendEscaped(absl::string_view text, std::string& out) {
  while (!text.empty()) {
    const char c = text[0];
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      absl::StrAppend(&out, "\\", absl::string_view(&c, 1));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned>(c));
    } else {
      absl::StrAppend(&out, text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

}  // namespace

void JsonWriter::NewLine() {
  text_ += '\n';
  text_.append(2 * empty_.size(), ' ');
}

void JsonWriter::Separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (empty_.empty()) return;
  if (!empty_.back()) text_ += ',';
  empty_.back() = false;
  NewLine();
}

JsonWriter& JsonWriter::Raw(absl::string_view value) {
  Separate();
  absl::StrAppend(&text_, value);
  return *this;
}

JsonWriter& JsonWriter::Begin(char bracket) {
  Separate();
  text_ += bracket;
  empty_.push_back(true);
  return *this;
}

JsonWriter& JsonWriter::End(char bracket) {
  const bool was_empty = empty_.back();
  empty_.pop_back();
  if (!was_empty) NewLine();
  text_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::BeginObject() { return Begin('{'); }
JsonWriter& JsonWriter::EndObject() { return End('}'); }
JsonWriter& JsonWriter::BeginArray() { return Begin('['); }
JsonWriter& JsonWriter::EndArray() { return End(']'); }

JsonWriter& JsonWriter::Key(absl::string_view key) {
  Value(key);
  text_ += ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::Null() { return Raw("null"); }

JsonWriter& JsonWriter::Value(double number) {
  if (!std::isfinite(number)) return Null();
  char digits[32];
  std::snprintf(digits, sizeof(digits), "%.17g", number);
  return Raw(digits);
}

JsonWriter& JsonWriter::Value(absl::string_view text) {
  Separate();
  text_ += '"';
  AppendEscaped(text, text_);
  text_ += '"';
  return *this;
}

}  // namespace leeway
