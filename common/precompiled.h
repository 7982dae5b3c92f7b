// What most sources include, compiled once for all of them (LEEWAY_PRECOMPILED in
// CMakeLists.txt). Sources still include all that they use. Nothing of gRPC: its headers
// would make every program link it.

#ifndef LEEWAY_COMMON_PRECOMPILED_H_
#define LEEWAY_COMMON_PRECOMPILED_H_

#include <Eigen/Core>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/federation.pb.h"
#include "proto/record.pb.h"
#include "proto/run.pb.h"

#endif  // LEEWAY_COMMON_PRECOMPILED_H_
