// LEAF JSON comes as files: in memory, as far as the system allows.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "client/import/importers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace fs = std::filesystem;
  static const fs::path base =
      (fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
      ("leeway-leaf-fuzz-" + std::to_string(getpid()));
  fs::create_directories(base / "train");
  std::ofstream(base / "train" / "a.json", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  leeway::LeafOptions options;
  options.source = base / "train";
  options.writer.out = base / "out";
  leeway::ImportLeaf(options).status().IgnoreError();
  fs::remove_all(base / "out");
  fs::remove_all(base / "train");
  return 0;
}
