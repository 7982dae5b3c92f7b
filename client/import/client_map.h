// Which client a code stands for: its first characters, or what a file of two columns
// says, code and client, such as postcodes and the hospitals they belong to. A code that
// ends in '*' stands for all codes that begin so; "*" alone for all others. Immutable.
#ifndef LEEWAY_CLIENT_IMPORT_CLIENT_MAP_H_
#define LEEWAY_CLIENT_IMPORT_CLIENT_MAP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace leeway {

class ClientMap {
 public:
  // Errors name the file and the line: rows without two cells, a code with two clients.
  static absl::StatusOr<ClientMap> Read(const std::string& path, char delimiter);

  // The first `characters` of a code are the client.
  static ClientMap OfPrefix(uint32_t characters);

  // The client of an exact code, else of the longest beginning; nullopt if there is none.
  std::optional<std::string> Find(const std::string& code) const;

 private:
  uint32_t prefix_ = 0;  // 0: by the file
  std::map<std::string, std::string> exact_;
  std::map<std::string, std::string> beginnings_;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_CLIENT_MAP_H_
