#include "trireme/train/checkpoint.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/input_file.h"
#include "trireme/base/parse.h"

namespace trireme {
namespace {

constexpr std::string_view kMagic = "TRIREME CHECKPOINT\n";
constexpr int kVersion = 1;
constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kSuffix = ".trireme";
constexpr std::size_t kKept = 2;

// A process killed while it wrote leaves a temporary, which nobody will finish.
void RemoveTemporaries(const std::filesystem::path& folder) {
  for (const std::filesystem::path& path : ListFolder(folder)) {
    std::error_code ignored;
    const std::string name = path.filename().string();
    if (name.ends_with(fmt::format("{}.tmp", kSuffix))) std::filesystem::remove(path, ignored);
  }
}

// The content of a file is not what this program writes.
struct Damaged : Error {
  using Error::Error;
};

constexpr std::size_t kMostHeader = 256;

// What the file holds is checked before anything is taken from it. The state may be larger than memory.
StateReader Read(const std::filesystem::path& file, const KeepSection& keep) {
  std::ifstream in = OpenInputFile(file);
  std::string header(kMostHeader, '\0');
  in.read(header.data(), kMostHeader);
  header.resize(static_cast<std::size_t>(in.gcount()));
  std::string_view rest = header;
  if (in.bad()) Fail("cannot read {}", file.string());
  if (!rest.starts_with(kMagic)) {
    throw Damaged(fmt::format("{} is not a Trireme checkpoint, or its beginning is damaged", file.string()));
  }
  rest.remove_prefix(kMagic.size());
  const std::string_view version = TakeLine(rest);
  if (version != fmt::format("version {}", kVersion)) {
    throw Damaged(fmt::format("{} was written in checkpoint format '{}'; this program reads version {}",
                              file.string(), version, kVersion));
  }
  const std::string_view length = TakeLine(rest);
  const std::string_view checksum = TakeLine(rest);
  const auto begin = static_cast<std::streamoff>(header.size() - rest.size());
  const auto go_to_state = [&] {
    in.clear();
    in.seekg(begin);
  };
  in.clear();
  const auto bytes = static_cast<std::uint64_t>(in.seekg(0, std::ios::end).tellg() - begin);
  if (length != fmt::format("bytes {}", bytes)) {
    throw Damaged(
        fmt::format("{} is truncated or damaged: it holds {} bytes of state where its header says '{}'",
                    file.string(), bytes, length));
  }
  go_to_state();
  const std::string found = Sha256Hex(in);
  if (in.bad()) Fail("cannot read {}", file.string());
  if (checksum != "sha256 " + found) {
    throw Damaged(fmt::format("{} is damaged: its checksum does not match", file.string()));
  }
  go_to_state();
  return StateReader(PickSections(in, bytes, keep));
}

}  // namespace

std::string StateFileName(std::string_view prefix, std::int64_t steps) {
  return fmt::format("{}{}{}", prefix, steps, kSuffix);
}

std::optional<std::int64_t> StepsInName(const std::filesystem::path& path, std::string_view prefix) {
  const std::string name = path.filename().string();
  if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) return std::nullopt;
  const char* begin = name.data() + prefix.size();
  const char* end = name.data() + name.size() - kSuffix.size();
  std::int64_t steps = 0;
  const auto [stop, error] = std::from_chars(begin, end, steps);
  if (error != std::errc() || stop != end || steps < 0) return std::nullopt;
  return steps;
}

void WriteStateFile(const std::filesystem::path& file, StateWriter&& state) {
  const std::string body = std::move(state).Encode();
  const std::string header =
      fmt::format("{}version {}\nbytes {}\nsha256 {}\n", kMagic, kVersion, body.size(), Sha256Hex(body));
  WriteFileAtomically(file, {header, body});
}

void WriteCheckpoint(const std::filesystem::path& folder, std::int64_t steps, StateWriter&& state) {
  RemoveTemporaries(folder);
  WriteStateFile(folder / StateFileName(kPrefix, steps), std::move(state));
  const std::vector<std::filesystem::path> all = ListCheckpoints(folder);
  for (std::size_t i = kKept; i < all.size(); ++i) {
    std::error_code ignored;
    std::filesystem::remove(all[i], ignored);
  }
}

std::vector<std::filesystem::path> ListCheckpoints(const std::filesystem::path& folder) {
  std::vector<std::pair<std::int64_t, std::filesystem::path>> found;
  for (const std::filesystem::path& path : ListFolder(folder)) {
    if (const auto steps = StepsInName(path, kPrefix)) found.emplace_back(*steps, path);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::filesystem::path> paths;
  paths.reserve(found.size());
  for (auto& [steps, path] : found) paths.push_back(std::move(path));
  return paths;
}

StateReader ReadCheckpoint(const std::filesystem::path& file, const KeepSection& keep) {
  return Read(file, keep);
}

std::optional<StateReader> ReadNewestCheckpoint(const std::filesystem::path& folder,
                                                const KeepSection& keep) {
  const std::vector<std::filesystem::path> all = ListCheckpoints(folder);
  if (all.empty()) return std::nullopt;
  try {
    return Read(all[0], keep);  // a file that cannot be read is not a damaged one
  } catch (const Damaged& damaged) {
    for (std::size_t i = 1; i < all.size(); ++i) {
      try {
        Read(all[i], KeepNone);
      } catch (const Error&) {
        continue;
      }
      Fail("{}. The previous good one is {}: to go on from there, remove the newer file and resume again.",
           damaged.what(), all[i].string());
    }
    Fail("{}. There is no earlier good one: to start the run from its beginning, remove it and resume again.",
         damaged.what());
  }
}

}  // namespace trireme
