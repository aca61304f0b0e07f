// A target without libFuzzer, for any compiler: runs a corpus and, for each of its files, some changes of it
// that are always the same. With `seeds` instead of a number it writes the inputs to begin with.
//   fuzz_settings_replay tests/fuzz/corpus/settings 100
//   fuzz_settings_replay tests/fuzz/corpus/settings seeds
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "input.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/rng.h"

namespace {

using trireme::Purpose;
using trireme::RandomStream;

void Run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

// Bytes turned over, replaced by what often matters, taken out, doubled, and put together with another file.
std::string Changed(std::string bytes, const std::vector<std::string>& corpus, RandomStream& random) {
  const auto below = [&](std::size_t n) { return random.NextBelow(static_cast<std::uint32_t>(n)); };
  for (int changes = 1 + static_cast<int>(below(4)); changes > 0; --changes) {
    if (bytes.empty()) bytes = corpus[below(corpus.size())];
    if (bytes.empty()) return bytes;
    const std::size_t at = below(bytes.size()),
                      size = 1 + below(std::min<std::size_t>(32, bytes.size() - at));
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random.NextBits());
        break;
      case 2:
        for (std::size_t i = at; i < at + size; ++i) bytes[i] = below(2) == 0 ? '\0' : '\xff';
        break;
      case 3:
        bytes.erase(at, size);
        break;
      case 4:
        bytes.insert(at, bytes.substr(at, size));
        break;
      case 5: {
        const std::string& other = corpus[below(corpus.size())];
        bytes = bytes.substr(0, at) + other.substr(below(other.size() + 1));
        break;
      }
    }
  }
  return bytes;
}

int Main(const std::filesystem::path& folder, const std::string& what) {
  if (what == "seeds") {
    std::filesystem::create_directories(folder);
    for (const auto& [name, bytes] : trireme::fuzz::Seeds())
      trireme::fuzz::WritePlainly(folder / name, bytes);
    return 0;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> corpus;
  for (const auto& file : files) corpus.push_back(trireme::ReadFile(file));
  if (corpus.empty()) trireme::Fail("{} is empty", folder.string());
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    // Printed first: what ends the process is the last line.
    fmt::print("{}\n", files[i].string());
    std::fflush(stdout);
    Run(corpus[i]);
    for (int change = 0; change < std::atoi(what.c_str()); ++change) {
      RandomStream random(1, Purpose::kTest, static_cast<std::uint32_t>(i), change);
      const std::string input = Changed(corpus[i], corpus, random);
      trireme::fuzz::WritePlainly("last-" + folder.filename().string(), input);
      Run(input);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) trireme::Fail("usage: {} CORPUS NUMBER|seeds", argv[0]);
    return Main(argv[1], argv[2]);
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
