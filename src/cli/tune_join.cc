#include "trireme/cli/tune_join.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "trireme/base/parse.h"
#include "trireme/cli/run_flags.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char *kAnywhere = "0.0.0.0:", *kThisHost = "127.0.0.1:";

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

std::string PortOf(const std::string& address) { return address.substr(address.rfind(':') + 1); }

// As others reach it.
std::string Reachable(const std::string& address) {
  return address.starts_with(kAnywhere) ? fmt::format("{}:{}", HostName(), PortOf(address)) : address;
}

// On hosts that share the folder of the study.
fs::path AddressFileOf(fs::path study) { return study.replace_extension("address"); }

std::string AddressToJoin(const std::string& place) {
  const fs::path file = AddressFileOf(place);
  std::error_code error;
  if (fs::exists(file, error)) return std::string(Trim(ReadFile(file)));
  if (!fs::exists(place, error)) return place;
  Fail("{} is a study, and no search with --listen is at work on it: {} does not exist", place,
       file.string());
}

std::string RandomToken() {
  std::ifstream random("/dev/urandom", std::ios::binary);
  std::string token;
  for (int i = 0; i < 16; ++i) token += fmt::format("{:02x}", random.get() & 255);
  if (!random) Fail("/dev/urandom cannot be read");
  return token;
}

// What the first process tells the others.
struct Meeting {
  std::string host, address, address_here, token;  // where it is, for others and for those on the same host

  std::string Encode() const { return fmt::format("{}\n{}\n{}\n{}\n", host, address, address_here, token); }
  static Meeting Decode(const std::string& text) {
    Meeting meeting;
    std::istringstream lines(text);
    std::getline(lines, meeting.host);
    std::getline(lines, meeting.address);
    std::getline(lines, meeting.address_here);
    std::getline(lines, meeting.token);
    return meeting;
  }
};

}  // namespace

void JoinFlags::AddTo(CommandLine& command) {
  command.Option("--listen", listen, "host:port where workers that join find the search");
  command.Option("--join", join,
                 "run trials for the search at host:port, or the one of this study if its folder is shared");
  security.AddTo(command, "who signs the other end");
}

void LetJoin(const JoinFlags& flags, Processes* processes, TuneOptions& options) {
  options.listen = flags.listen;
  options.security = flags.security.Read();
  if (processes != nullptr && processes->size() > 1) {
    if (options.listen.empty()) options.listen = std::string(kAnywhere) + "0";
    if (options.security.token.empty()) options.security.token = RandomToken();
    options.awaited = (processes->size() - 1) * options.parallel;
  }
  if (options.listen.empty()) return;
  options.transport = &LoadGrpc();
  const fs::path file = AddressFileOf(options.study);
  const bool in_file = !flags.listen.empty();
  const bool open = options.security.token.empty() && !options.listen.starts_with("unix:") &&
                    !options.listen.starts_with("127.") && !options.listen.starts_with("localhost:");
  options.listening = [=, say = options.say, token = options.security.token](const std::string& address) {
    if (in_file) {
      WriteFileAtomically(file, Reachable(address) + "\n");
      say(fmt::format("workers join with: trireme tune --join {}", Reachable(address)));
    }
    if (open) say("no --token-file: whoever reaches this address can take part in the search");
    if (processes == nullptr) return;
    const std::string here = address.starts_with(kAnywhere) ? kThisHost + PortOf(address) : address;
    std::string meeting = Meeting{HostName(), Reachable(address), here, token}.Encode();
    processes->Broadcast(meeting);
  };
}

void EndJoining(const TuneOptions& options) {
  std::error_code ignored;
  if (!options.listen.empty()) fs::remove(AddressFileOf(options.study), ignored);
}

int RunJoin(const JoinFlags& flags, JoinOptions options) {
  options.transport = &LoadGrpc();
  options.address = AddressToJoin(flags.join);
  options.security = flags.security.Read();
  return JoinSearch(options) ? 0 : InterruptedCode();
}

int RunAlong(Processes& processes, JoinOptions options) {
  std::string text;
  processes.Broadcast(text);
  const Meeting meeting = Meeting::Decode(text);
  options.transport = &LoadGrpc();
  options.address = meeting.address;
  if (meeting.host == HostName()) options.address = meeting.address_here;
  options.security.token = meeting.token;
  try {
    JoinSearch(options);
  } catch (const Error& error) {
    fmt::print(stderr, "error: process {} on {} runs no trials: {}\n", processes.rank(), HostName(),
               error.what());
  }
  return 0;
}

}  // namespace trireme
