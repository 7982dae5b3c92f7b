#include "common/utf8.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace leeway {

size_t Utf8SequenceLength(absl::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                        : lead >= 0xe0 && lead < 0xf0 ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies beyond Unicode.
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) >= 0xa0) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) >= 0x90) return 0;
  return length;
}

bool Utf8IsHidden(absl::string_view text) {
  const size_t length = Utf8SequenceLength(text);
  if (length == 0) return false;
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(text[i]) & 0xff; };
  if (length == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  uint32_t code = byte(0) & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3f);
  const auto in = [code](uint32_t first, uint32_t last) { return code >= first && code <= last; };
  return in(0x80, 0x9f) ||      // control characters
         code == 0xad ||        // soft hyphen
         code == 0x61c ||       // Arabic letter mark
         in(0x200b, 0x200f) ||  // zero-width characters, direction marks
         in(0x2028, 0x202e) ||  // separators, embeddings and overrides
         in(0x2060, 0x206f) ||  // isolates, invisible operators
         code == 0xfeff ||      // zero-width no-break space
         in(0xe0000, 0xe007f);  // tags
}

std::string OneLine(absl::string_view text, size_t most) {
  std::string line;
  while (!text.empty()) {
    if (line.size() >= most) return line + "...";
    const size_t length = Utf8SequenceLength(text);
    if (length == 0 || Utf8IsHidden(text)) {
      for (size_t i = 0; i < std::max<size_t>(1, length); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        absl::StrAppend(&line, "\\x", absl::Hex(byte, absl::kZeroPad2));
      }
      text.remove_prefix(std::max<size_t>(1, length));
    } else {
      absl::StrAppend(&line, text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return line;
}

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
    } else if (Utf8IsHidden(text)) {
      out += "\xef\xbf\xbd";
    } else {
      absl::StrAppend(&out, text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace leeway
