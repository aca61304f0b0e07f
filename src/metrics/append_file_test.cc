#include "trireme/metrics/append_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "trireme/base/file.h"
#include "trireme/metrics/test_util.h"

namespace trireme {
namespace {

TEST(AppendFile, AShorterFileIsKeptWholeAndGrows) {
  const TestFolder folder;
  std::ofstream(folder / "a") << "abc";
  AppendFile file(folder / "a", 100);
  EXPECT_EQ(file.size(), 3u);
  file.Append("def");
  EXPECT_EQ(file.size(), 6u);
  EXPECT_EQ(ReadFile(folder / "a"), "abcdef");
  file.CutTo(50);
  EXPECT_EQ(ReadFile(folder / "a"), "abcdef");
  file.CutTo(4);
  EXPECT_EQ(file.size(), 4u);
  file.Append("x");
  EXPECT_EQ(ReadFile(folder / "a"), "abcdx");
}

// A named pipe, and the end that reads.
class Pipe {
 public:
  explicit Pipe(const std::filesystem::path& path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    fd_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    EXPECT_GE(fd_, 0);
  }
  ~Pipe() { ::close(fd_); }
  // What is in it now.
  std::string Read() const {
    std::string all(1 << 20, '\0');
    const ssize_t got = ::read(fd_, all.data(), all.size());
    return all.substr(0, got < 0 ? 0 : static_cast<std::size_t>(got));
  }
  int capacity() const { return ::fcntl(fd_, F_GETPIPE_SZ); }

 private:
  int fd_;
};

TEST(AppendFile, APipeIsAppendedToAsItIs) {
  const TestFolder folder;
  const Pipe pipe(folder / "pipe");
  AppendFile file(folder / "pipe", 0);
  file.Append("one ");
  file.Append("two");
  EXPECT_EQ(ErrorOf([&] { file.CutTo(2); }), "");
  EXPECT_EQ(ErrorOf([&] { file.Flush(); }), "");
  EXPECT_EQ(file.size(), 7u);
  EXPECT_EQ(pipe.Read(), "one two");
}

std::atomic<int> signals = 0;

// Whether the thread waits in the kernel.
bool Sleeps(pid_t thread) {
  const std::string stat = ReadFile(fmt::format("/proc/self/task/{}/stat", thread));
  return stat.substr(stat.rfind(')') + 2, 1) == "S";
}

// The record is longer than the pipe: the rest waits until somebody reads, and signals come meanwhile.
TEST(AppendFile, ASignalInTheMiddleOfARecordLosesNothing) {
  const TestFolder folder;
  const Pipe pipe(folder / "pipe");
  signals = 0;
  using Action = struct sigaction;
  Action action = {}, before = {};
  action.sa_handler = [](int) { ++signals; };  // without SA_RESTART: what waits in the kernel is interrupted
  ASSERT_EQ(::sigaction(SIGUSR2, &action, &before), 0);
  AppendFile file(folder / "pipe", 0);
  const std::string record(static_cast<std::size_t>(pipe.capacity()) + 1000, 'r');
  std::string error;
  std::atomic<pid_t> id = 0;
  std::atomic<bool> done = false;
  std::thread writer([&] {
    id = static_cast<pid_t>(::syscall(SYS_gettid));
    error = ErrorOf([&] { file.Append(record); });
    done = true;
  });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  const auto eventually = [&](auto&& condition) {
    while (!condition() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    return condition();
  };
  // The first ends a write that has taken some of the record, the next one a write that has taken nothing.
  for (int i = 1; i <= 3; ++i) {
    EXPECT_TRUE(eventually([&] { return done || (id != 0 && Sleeps(id)); }));
    ::pthread_kill(writer.native_handle(), SIGUSR2);
    EXPECT_TRUE(eventually([&] { return done || signals == i; }));
  }
  std::string got;
  EXPECT_TRUE(eventually([&] {
    got += pipe.Read();
    return done.load();
  }));
  writer.join();
  got += pipe.Read();
  ::sigaction(SIGUSR2, &before, nullptr);
  EXPECT_EQ(error, "");
  EXPECT_EQ(got.size(), record.size());
  EXPECT_EQ(file.size(), record.size());
}

}  // namespace
}  // namespace trireme
