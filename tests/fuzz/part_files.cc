// The files of a part: those of several moments of its life mixed, cut, changed and replaced. What is found
// again is whole.
#include <array>
#include <filesystem>
#include <memory>

#include "input.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/server/disk/parameter_part.h"

namespace trireme::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSize = 20;
const char* const kFiles[] = {"part/shard.snapshot", "part/shard.log0", "part/shard.log1", "audit"};
using Moment = std::array<std::string, std::size(kFiles)>;  // the contents of the files

PartStorage StorageIn(const fs::path& folder) {
  return {.folder = folder / "part", .durable = false, .audit = folder / "audit", .log_bytes = 400};
}

// The same part before and after updates, notes and snapshots.
const std::vector<Moment>& Moments() {
  static const std::vector<Moment> moments = [] {
    std::vector<Moment> life;
    const ScratchFolder folder;
    const auto look = [&] {
      Moment& moment = life.emplace_back();
      for (std::size_t i = 0; i < moment.size(); ++i) {
        if (fs::exists(folder.path() / kFiles[i])) moment[i] = ReadFile(folder.path() / kFiles[i]);
      }
    };
    ParameterPart part({.identity = "fuzz", .optimizer = {}, .begin = 0, .size = kSize},
                       StorageIn(folder.path()), std::vector<float>(kSize, 0.5f));
    for (std::uint64_t sequence = 1; sequence <= 12; ++sequence) {
      part.Apply({.worker = sequence % 3, .sequence = sequence, .steps = 4, .learning_rate = 0.1f},
                 std::vector<float>(kSize, 1.0f), sequence % 4 == 0 ? "a note" : "");
      if (sequence % 5 == 0) part.Note("name", std::string(sequence, 'x'));
      if (sequence % 3 == 0) look();
    }
    return life;
  }();
  return moments;
}

void Recover(Input& in) {
  const ScratchFolder folder;
  fs::create_directory(folder.path() / "part");
  for (std::size_t i = 0; i < std::size(kFiles); ++i) {
    std::string bytes = Moments()[in.Byte() % Moments().size()][i];
    for (int edits = in.Choice(4); edits > 0; --edits) {
      const std::size_t at = bytes.empty() ? 0 : in.Number(2) % bytes.size();
      switch (in.Choice(5)) {
        case 0:
          bytes.resize(at);
          break;
        case 1:
          if (!bytes.empty()) bytes[at] = static_cast<char>(in.Byte());
          break;
        case 2:
          bytes.insert(at, in.Text());
          break;
        case 3:
          bytes.erase(at, in.Byte());
          break;
        case 4:
          bytes = in.Text();
          break;
      }
    }
    if (!bytes.empty() || in.Choice(2) == 0) WritePlainly(folder.path() / kFiles[i], bytes);
  }
  const std::unique_ptr<ParameterPart> part = ParameterPart::Recover(StorageIn(folder.path()));
  if (!part) return;
  // What was accepted works, and is found again.
  const std::uint64_t version = part->version(), sequence = part->LastSequence(1) + 1;
  part->Apply({.worker = 1, .sequence = sequence, .steps = 1, .learning_rate = 0.1f},
              std::vector<float>(part->params().size(), 1.0f));
  TRIREME_CHECK(part->version() == version + 1 && part->LastSequence(1) == sequence);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  std::vector<std::pair<std::string, std::string>> seeds;
  for (int moment = 0; moment < 4; ++moment) {
    InputWriter whole;
    for (std::size_t i = 0; i < std::size(kFiles); ++i) whole.Byte(moment).Byte(0);
    seeds.emplace_back("whole-" + std::to_string(moment), whole.str());
  }
  for (std::size_t damaged = 0; damaged < std::size(kFiles); ++damaged) {
    for (int way = 0; way < 5; ++way) {
      InputWriter input;
      for (std::size_t i = 0; i < std::size(kFiles); ++i) {
        input.Byte(3).Byte(i == damaged ? 1 : 0);
        if (i != damaged) continue;
        input.Number(60, 2).Byte(way);
        if (way == 1 || way == 3) input.Byte(7);
        if (way == 2 || way == 4) input.Text("other text");
      }
      seeds.emplace_back("damaged-" + std::to_string(damaged) + "-" + std::to_string(way), input.str());
    }
  }
  return seeds;
}

}  // namespace trireme::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trireme::fuzz::Input in(data, size);
  try {
    trireme::fuzz::Recover(in);
  } catch (const trireme::Error&) {
  }
  return 0;
}
