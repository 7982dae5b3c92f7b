// Directory names for clients. A client may be called anything; its directory
// must be one safe path component, and different clients must get different ones.
#ifndef LEEWAY_CLIENT_IMPORT_CLIENT_NAME_H_
#define LEEWAY_CLIENT_IMPORT_CLIENT_NAME_H_

#include <string>

#include "absl/strings/string_view.h"

namespace leeway {

// The name itself when it is safe. Otherwise unsafe bytes ('/', '\\', '%', a leading
// '.', bytes that are not UTF-8, hidden characters as in common/utf8.h) become %XX, so
// that no two names meet; very long names end in a digest instead.
std::string DirectoryName(absl::string_view client);

// `text` with hidden characters and bytes that are not UTF-8 as %XX: fit for JSON and
// terminals.
std::string Printable(absl::string_view text);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_CLIENT_NAME_H_
