// The version of this build, from CMake's project().
#ifndef LEEWAY_COMMON_VERSION_H_
#define LEEWAY_COMMON_VERSION_H_

namespace leeway {
inline constexpr char kVersion[] = LEEWAY_VERSION;
}  // namespace leeway

#endif  // LEEWAY_COMMON_VERSION_H_
