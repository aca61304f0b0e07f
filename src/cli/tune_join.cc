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

// Of the search that has written it; empty: there is none now.
std::string AddressIn(const fs::path& file) {
  try {
    return std::string(Trim(ReadFile(file)));
  } catch (const Error&) {
    return "";
  }
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

JoinPlace::JoinPlace(const JoinFlags& flags, Processes* processes, TuneOptions& options)
    : file_(flags.listen.empty() ? fs::path() : AddressFileOf(options.study)), processes_(processes) {
  options.listen = flags.listen;
  options.security = flags.security.Read();
  if (processes != nullptr && processes->size() > 1) {
    if (options.listen.empty()) options.listen = std::string(kAnywhere) + "0";
    if (options.security.token.empty()) options.security.token = RandomToken();
    options.awaited = (processes->size() - 1) * options.parallel;
  }
  if (options.listen.empty()) return;
  options.transport = &LoadGrpc();
  const bool open = options.security.token.empty() && !OnThisMachineOnly(options.listen);
  options.listening = [=, this, say = options.say,
                       token = options.security.token](const std::string& address) {
    if (!file_.empty()) say(fmt::format("workers join with: trireme tune --join {}", Reachable(address)));
    if (open) say("no --token-file: whoever reaches this address can take part in the search");
    Announce(address, token);
  };
}

void JoinPlace::Announce(const std::string& address, const std::string& token) {
  if (!file_.empty()) {
    written_ = Reachable(address);
    WriteFileAtomically(file_, written_ + "\n");
  }
  if (processes_ == nullptr) return;
  const std::string here = address.starts_with(kAnywhere) ? kThisHost + PortOf(address) : address;
  std::string meeting = Meeting{HostName(), Reachable(address), here, token}.Encode();
  processes_->Broadcast(meeting);
  LeaveProcesses(0);  // they go on without MPI, which would end all with one
}

JoinPlace::~JoinPlace() {
  std::error_code ignored;
  if (!written_.empty() && AddressIn(file_) == written_)
    fs::remove(file_, ignored);  // not that of a later search
}

int RunJoin(const JoinFlags& flags, JoinOptions options) {
  options.transport = &LoadGrpc();
  options.place = flags.join;
  options.find = [place = flags.join] {
    const std::string address = AddressIn(AddressFileOf(place));
    return address.empty() && place.find(':') != std::string::npos ? place : address;
  };
  options.security = flags.security.Read();
  return JoinSearch(options) ? 0 : InterruptedCode();
}

int RunAlong(const JoinFlags& flags, Processes& processes, JoinOptions options) {
  std::string text;
  const int rank = processes.rank();
  processes.Broadcast(text);
  LeaveProcesses(0);
  try {
    const Meeting meeting = Meeting::Decode(text);
    options.transport = &LoadGrpc();
    options.place = meeting.host == HostName() ? meeting.address_here : meeting.address;
    options.find = [place = options.place] { return place; };
    options.security = flags.security.Read();
    options.security.token = meeting.token;
    JoinSearch(options);
  } catch (const Error& error) {
    fmt::print(stderr, "trireme: process {} on {} runs no trials: {}\n", rank, HostName(), error.what());
  }
  return 0;
}

}  // namespace trireme
