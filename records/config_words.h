// Explains what the text-proto parser says about a config: which fields or values
// there are, and which one may have been meant.
#ifndef LEEWAY_RECORDS_CONFIG_WORDS_H_
#define LEEWAY_RECORDS_CONFIG_WORDS_H_

#include <string>

namespace leeway {

// The parser's message in words for users; messages that are not about an unknown
// field or value stay as they are.
std::string ExplainParseError(const std::string& message);

}  // namespace leeway

#endif  // LEEWAY_RECORDS_CONFIG_WORDS_H_
