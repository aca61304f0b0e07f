#include "trireme/server/disk/part_snapshot.h"

#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/parse.h"

namespace trireme {
namespace {

constexpr std::string_view kMagic = "TRIREME SHARD\n";
constexpr int kVersion = 3;  // of all files of a part
constexpr std::string_view kWayOut =
    "put back a copy of the whole folder, or remove the folder to begin the part anew";

}  // namespace

void WriteSnapshot(const std::filesystem::path& path, StateWriter&& state) {
  const std::string body = std::move(state).Encode();
  const std::string header =
      fmt::format("{}version {}\nbytes {}\nsha256 {}\n", kMagic, kVersion, body.size(), Sha256Hex(body));
  WriteFileAtomically(path, {header, body});
}

StateReader ReadSnapshot(const std::filesystem::path& path) {
  const std::string content = ReadFile(path);
  std::string_view rest = content;
  if (!rest.starts_with(kMagic)) {
    Fail("{} is not the snapshot of a part, or its beginning is damaged: {}", path.string(), kWayOut);
  }
  rest.remove_prefix(kMagic.size());
  const std::string_view version = TakeLine(rest);
  if (version != fmt::format("version {}", kVersion)) {
    Fail(
        "{} was written in format '{}', and this program reads version {}: start the server with the program "
        "that wrote it, or choose another folder",
        path.string(), version, kVersion);
  }
  const std::string_view bytes = TakeLine(rest);
  const std::string_view checksum = TakeLine(rest);
  if (bytes != fmt::format("bytes {}", rest.size())) {
    Fail("{} is truncated or damaged, it holds {} bytes of state where its header says '{}': {}",
         path.string(), rest.size(), bytes, kWayOut);
  }
  if (checksum != "sha256 " + Sha256Hex(rest)) {
    Fail("{} is damaged, its checksum does not match: {}", path.string(), kWayOut);
  }
  return StateReader(rest);
}

}  // namespace trireme
