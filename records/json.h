// JsonWriter: writes one JSON value as text, indented, piece by piece. Numbers
// have 17 significant digits, so that a double comes back as it was; NaN and
// infinities, which JSON does not have, become null. A value; not thread-safe.
#ifndef LEEWAY_RECORDS_JSON_H_
#define LEEWAY_RECORDS_JSON_H_

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace leeway {

class JsonWriter {
 public:
  JsonWriter& BeginObject();
  JsonWriter& EndObject();
  JsonWriter& BeginArray();
  JsonWriter& EndArray();
  // The name of the next value; only inside an object.
  JsonWriter& Key(absl::string_view key);

  JsonWriter& Null();
  JsonWriter& Bool(bool value) { return Raw(value ? "true" : "false"); }
  JsonWriter& Value(double number);
  JsonWriter& Value(absl::string_view text);
  JsonWriter& Value(const char* text) { return Value(absl::string_view(text)); }
  template <std::unsigned_integral T>
  JsonWriter& Value(T number) {
    return Raw(std::to_string(number));
  }

  // Key and value in one.
  template <typename T>
  JsonWriter& Field(absl::string_view key, const T& value) {
    return Key(key).Value(value);
  }
  JsonWriter& NullField(absl::string_view key) { return Key(key).Null(); }

  const std::string& text() const { return text_; }

 private:
  void Separate();  // what goes between the last value and the next
  void NewLine();
  JsonWriter& Raw(absl::string_view value);
  JsonWriter& Begin(char bracket);
  JsonWriter& End(char bracket);

  std::string text_;
  std::vector<bool> empty_;  // for each open bracket: nothing in it yet
  bool after_key_ = false;
};

}  // namespace leeway

#endif  // LEEWAY_RECORDS_JSON_H_
