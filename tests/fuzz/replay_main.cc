// Runs a fuzz target over files and directories of files: the seed corpora as
// ordinary tests, for compilers without libFuzzer.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  int inputs = 0;
  const auto run = [&inputs](const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    // Also cut short everywhere, and with each byte changed: cheap, and often enough.
    for (size_t cut = 0; cut <= bytes.size() && cut < 4096; ++cut, ++inputs) {
      const std::string part = bytes.substr(0, bytes.size() - cut);
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(part.data()), part.size());
    }
    for (size_t i = 0; i < bytes.size() && i < 4096; ++i, ++inputs) {
      std::string other = bytes;
      other[i] = static_cast<char>(other[i] ^ (1 << (i % 8)));
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(other.data()), other.size());
    }
  };
  for (int i = 1; i < argc; ++i) {
    if (!fs::is_directory(argv[i])) {
      run(argv[i]);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(argv[i])) {
      if (entry.is_regular_file()) run(entry.path());
    }
  }
  std::printf("%d inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
