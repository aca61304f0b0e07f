#include "trireme/env/host/process.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/base/system.h"
#include "trireme/env/host/futex.h"

namespace trireme {
namespace {

constexpr double kToEnd = 5;  // seconds that a host has for closing its environments
constexpr std::size_t kMostMessage = 128 << 10;

}  // namespace

std::uint32_t ServedPart::At() const {
  std::uint32_t at = words->first;
  while (at < words->first + words->count - 1 && LoadWord(rewards[at]) != kHostPending) ++at;
  return at;
}

bool ServedPart::done() const { return LoadWord(words->done) == LoadWord(words->request); }

HostProcess::HostProcess(HostLauncher& launcher, const HostPatience& patience, const HostProgram& program,
                         const std::string& name, const std::string& start)
    : launcher_(launcher), patience_(patience), name_(name), bell_(sizeof(HostBell), "a host process") {
  bell().magic = kHostMagic;
  bell().version = kHostVersion;
  HostLauncher::Launched launched = launcher_.Launch(program, name);
  pid_ = launched.pid;
  socket_ = std::move(launched.socket);
  try {
    Send(start, bell_.fd());
  } catch (const HostLost&) {  // WaitUntilStarted says why
  }
}

void HostProcess::AskToEnd() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(asked_to_end_, true) || ended_) return;
  }
  try {
    Tell(R"({"op":"end"})");
  } catch (const Error&) {  // it has gone
  }
}

HostProcess::~HostProcess() {
  AskToEnd();
  for (const double since_s = MonotonicSeconds(); !ended() && MonotonicSeconds() - since_s < kToEnd;) {
    pollfd hangup{socket_.get(), 0, 0};
    ::poll(&hangup, 1, 10);
    if ((hangup.revents & POLLHUP) != 0 && !ended()) ::usleep(1000);
  }
  Kill();
}

void HostProcess::WaitUntilStarted() {
  const std::lock_guard lock(conversation_);
  if (started_) return;
  if (const Answer answer = Receive(HostWork::kMaking); !answer.error.empty()) throw HostLost(answer.error);
  started_ = true;
}

HostProcess::Answer HostProcess::Ask(const std::string& message, HostWork work, int memory) {
  const std::lock_guard lock(conversation_);
  Send(message, memory);
  return Receive(work);
}

void HostProcess::Tell(const std::string& message) {
  const std::lock_guard lock(conversation_);
  Send(message, -1);
}

void HostProcess::Send(const std::string& message, int memory) {
  iovec bytes{const_cast<char*>(message.data()), message.size()};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (memory >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    ::memcpy(CMSG_DATA(rights), &memory, sizeof(int));
  }
  AddToWord(bell().messages);  // before it is there: who sees it waits for it
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) {
    const std::string why = fmt::format("{} cannot be reached: {}", name_, ::strerror(errno));
    Kill();
    throw HostLost(fmt::format("{}; {}", why, Obituary()));
  }
  Ring();
}

HostProcess::Answer HostProcess::Receive(HostWork work) {
  HostWait wait = HostWait::ForAnswer(patience_, work);
  for (pollfd polled{socket_.get(), POLLIN, 0};;) {
    const double since_s = MonotonicSeconds();
    if (::poll(&polled, 1, static_cast<int>(1000 * HostWait::kSlice)) > 0) break;
    if (!wait.IsOver(progress(), MonotonicSeconds() - since_s)) continue;
    GiveUp(wait.work());
    throw HostLost(Obituary());
  }
  Answer answer;
  answer.text.resize(kMostMessage);
  iovec bytes{answer.text.data(), answer.text.size()};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t received = 0;
  bool reset = false;  // it has gone without reading everything; what it said before is still there
  do {
    received = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
  } while (received < 0 && (errno == EINTR || (errno == ECONNRESET && !std::exchange(reset, true))));
  if (received <= 0) {
    Kill();
    throw HostLost(Obituary());
  }
  answer.text.resize(static_cast<std::size_t>(received));
  const auto said = nlohmann::json::parse(answer.text, nullptr, false);
  if (!said.is_object()) {
    answer.error = fmt::format("{} does not speak the language of hosts", name_);
  } else if (said.contains("error")) {
    answer.error = said["error"].is_string() ? said["error"].get<std::string>() : said["error"].dump();
  }
  const cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
    int memory = -1;
    ::memcpy(&memory, CMSG_DATA(rights), sizeof memory);
    answer.memory = UniqueFd(memory);
  }
  return answer;
}

void HostProcess::Ring() {
  AddToWord(bell().rings);
  if (LoadWord(bell().sleeping) != 0) FutexWake(bell().rings);
}

std::uint32_t HostProcess::serving() const { return LoadWord(bell().serving); }

void HostProcess::AddPart(std::shared_ptr<ServedPart> part) {
  const std::lock_guard lock(parts_mutex_);
  ForgetClosedParts();
  parts_.push_back(std::move(part));
}

void HostProcess::ForgetClosedParts() {
  std::erase_if(parts_, [](const auto& part) { return part->closed && part->done(); });
}

HostProgress HostProcess::progress() {
  HostProgress now{.serving = serving(), .steps = LoadWord(bell().progress)};
  const std::lock_guard lock(parts_mutex_);
  ForgetClosedParts();
  for (const auto& part : parts_) {
    now.done += LoadWord(part->words->done);
    if (now.serving == part->number + 1) now.at = part->At();
  }
  return now;
}

std::string HostProcess::StuckAt() {
  const std::uint32_t now = serving();
  const std::lock_guard lock(parts_mutex_);
  for (const auto& part : parts_) {
    if (now != part->number + 1) continue;
    const std::string name = fmt::format("environment {}", part->first_id + part->At());
    return part->step == 0 ? name + " in its first reset"
                           : fmt::format("{} at step {}", name, part->step.load());
  }
  return name_;
}

bool HostProcess::ended() {
  const std::lock_guard lock(mutex_);
  if (ended_) return true;
  siginfo_t info{};
  const int error = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (error == 0 ? info.si_pid == 0 : errno == EINTR) return false;
  ended_ = true;
  ::kill(-pid_, SIGKILL);  // what it has started
  rusage used{};
  ::wait4(pid_, &status_, 0, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  cpu_s_ = seconds(used.ru_utime) + seconds(used.ru_stime);
  last_lines_ = launcher_.TakeLastLines(pid_);
  return true;
}

double HostProcess::cpu_s() {
  const std::lock_guard lock(mutex_);  // until then it is there, if only as what is left of it
  if (ended_) return cpu_s_;
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void HostProcess::GiveUp(HostWork work) {
  const std::string why = fmt::format("{} has not answered for {}", StuckAt(), patience_.Describe(work));
  {
    const std::lock_guard lock(mutex_);
    if (!ended_ && given_up_.empty()) given_up_ = why;
    if (!ended_) ::kill(pid_, SIGUSR1);
  }
  for (int look = 0; look < 100 && !ended(); ++look) ::usleep(2000);
  Kill();
}

bool HostProcess::given_up() {
  const std::lock_guard lock(mutex_);
  return !given_up_.empty();
}

// It may be about to end on its own, for a reason of its own.
void HostProcess::Kill() {
  for (int look = 0; look < 20 && !ended(); ++look) {
    pollfd hangup{socket_.get(), 0, 0};
    if (::poll(&hangup, 1, 0) == 0 || (hangup.revents & POLLHUP) == 0) break;
    ::usleep(1000);
  }
  while (!ended()) {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
    ::usleep(500);
  }
}

std::string HostProcess::Obituary() {
  if (!ended()) return fmt::format("{} is alive", name_);
  const auto [status, given_up] = [&] {
    const std::lock_guard lock(mutex_);
    return std::pair(status_, given_up_);
  }();
  if (!given_up.empty()) return given_up + LastLines();
  const std::string how = WIFSIGNALED(status) ? fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                                                            ::sigdescr_np(WTERMSIG(status)))
                                              : fmt::format("has ended with status {}", WEXITSTATUS(status));
  return fmt::format("{} {}{}", name_, how, LastLines());
}

std::string HostProcess::LastLines() {
  const std::lock_guard lock(mutex_);
  if (last_lines_.empty()) return "";
  std::string text = ". Its last lines:\n" + last_lines_;
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace trireme
