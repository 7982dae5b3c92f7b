// The files of the dashboard's page, as part of the program.
#ifndef LEEWAY_DASHBOARD_ASSETS_H_
#define LEEWAY_DASHBOARD_ASSETS_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace leeway {

struct Asset {
  absl::string_view path;  // of its URL
  absl::string_view type;
  absl::string_view bytes;
};

absl::Span<const Asset> Assets();

}  // namespace leeway

#endif  // LEEWAY_DASHBOARD_ASSETS_H_
