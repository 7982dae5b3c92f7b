#include "cli/utf8.h"

#include "absl/strings/str_cat.h"

namespace leeway {

size_t Utf8Length(absl::string_view text) {
  size_t count = 0;
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    text.remove_prefix(length == 0 ? 1 : length);
    ++count;
  }
  return count;
}

std::string EscapeXml(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    const auto c = static_cast<unsigned char>(text[0]);
    if (length == 0 || text.substr(0, length) == "\xef\xbf\xbe" ||
        text.substr(0, length) == "\xef\xbf\xbf") {  // U+FFFE, U+FFFF: not in XML
      out += "\xef\xbf\xbd";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (c < 0x20 || c == 0x7f) {
      out += ' ';
    } else {
      absl::StrAppend(&out, text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace leeway
