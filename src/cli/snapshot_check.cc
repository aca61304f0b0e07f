#include "trireme/cli/snapshot_check.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/base/state.h"
#include "trireme/base/text.h"
#include "trireme/env/env_check.h"

extern char** environ;

namespace trireme {
namespace {

constexpr const char* kScope = "env";
constexpr int kCopies = 11, kBefore = 37;
constexpr std::uint32_t kFirstId = 30;

std::string SeenFile(const std::string& snapshot) { return snapshot + ".seen"; }

// A line for each step after the snapshot: the hash of all that can be seen of it.
std::string StepsAfter(const EnvEntry& env, EnvBatch& batch) {
  std::string lines;
  for (int t = kBefore; t < kBefore + std::min(LongRun(env), 300); ++t) {
    StepRandomly(batch, kFirstId, static_cast<std::uint64_t>(t));
    std::string seen;
    for (const std::vector<double>& copy : SeenByAll(batch)) {
      seen.append(reinterpret_cast<const char*>(copy.data()), copy.size() * sizeof(double));
    }
    lines += Sha256Hex(seen) + "\n";
  }
  return lines;
}

// Runs this program; what it says goes to the file `said`. Returns how it ended, as waitpid has it.
int RunSelf(std::vector<std::string> words, const std::string& said) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) Fail("cannot start a second process: {}", std::strerror(error));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// The last line of what was said, without the name of the program.
std::string LastLine(std::string_view said) {
  while (said.ends_with('\n')) said.remove_suffix(1);
  said.remove_prefix(said.rfind('\n') == std::string_view::npos ? 0 : said.rfind('\n') + 1);
  if (said.starts_with("trireme: ")) said.remove_prefix(std::strlen("trireme: "));
  return Printable(said);
}

}  // namespace

void CheckSnapshotElsewhere(const EnvEntry& env, const std::string& name,
                            const std::vector<std::string>& args) {
  const ScratchFolder scratch;
  const std::string file = (scratch.path() / "snapshot").string(), said = file + ".said";
  const auto batch = MakeReset(env, kCopies, 5, kFirstId);
  for (int t = 0; t < kBefore; ++t) StepRandomly(*batch, kFirstId, static_cast<std::uint64_t>(t));
  StateWriter out;
  batch->snapshots()->Save(out, kScope);
  WriteNewFile(file, out.Encode());
  std::vector<std::string> words = {"trireme", "envs", name, kGoOnFlag, file};
  for (const std::string& arg : args) words.insert(words.end(), {"--env-arg", arg});
  const int status = RunSelf(std::move(words), said);
  if (WIFSIGNALED(status)) {
    Fail(
        "another process that has loaded its snapshot crashes ({}). Does the state hold pointers? "
        "They mean nothing there, so a run could not be resumed: keep what they point to instead, or set "
        "spec.snapshots to 0",
        strsignal(WTERMSIG(status)));
  }
  if (status != 0) Fail("another process cannot go on from its snapshot: {}", LastLine(ReadFile(said)));
  const std::string here = StepsAfter(env, *batch), there = ReadFile(SeenFile(file));
  if (here == there) return;
  const auto same = std::ranges::mismatch(here, there).in1;
  Fail(
      "another process that has loaded its snapshot sees something else in step {}. Is something "
      "kept outside the state, or does the state hold pointers?",
      std::count(here.begin(), same, '\n') + 1);
}

void GoOnFrom(const EnvEntry& env, const std::string& file) {
  if (!env.facts.snapshots) Fail("{} has no snapshots", env.spec.name);
  const StateReader saved(ReadFile(file));
  const auto batch = MakeReset(env, kCopies, 6, 0);
  batch->snapshots()->Load(saved, kScope);
  WriteNewFile(SeenFile(file), StepsAfter(env, *batch));
}

}  // namespace trireme
