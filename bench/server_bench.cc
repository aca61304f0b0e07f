// What a push and pull through a parameter server costs, beside what gRPC itself costs (rpc_bench, run before
// this): the round trip of a model of 20 KB, and the bandwidth for one of 1 MB. The server is a process of
// its own (trireme server).
//
//   server_bench <trireme> [seconds per row, default 2]
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <vector>

#include "timing.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/server/client/server_store.h"

namespace trireme {
namespace {

// A server on a Unix socket or on loopback, ended with the object.
class ServerProcess {
 public:
  ServerProcess(const std::string& trireme, const std::string& address, const std::string& folder)
      : pid_(fork()) {
    if (pid_ != 0) return;
    if (folder.empty()) {
      execl(trireme.c_str(), "trireme", "server", "--listen", address.c_str(), "--quiet", nullptr);
    } else {
      execl(trireme.c_str(), "trireme", "server", "--listen", address.c_str(), "--dir", folder.c_str(),
            "--quiet", nullptr);
    }
    _exit(127);
  }
  ~ServerProcess() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

void PrintRow(const std::string& trireme, const std::string& name, const std::string& address, bool keeps,
              std::size_t size, double budget) {
  const ScratchFolder folder;
  const ServerProcess server(trireme, address, keeps ? (folder.path() / "server").string() : "");
  RunTerms terms;
  terms.params = size;
  terms.pace = Pace::kAsync;
  ServerSession session({{&LoadGrpc(), address, {}, 20}}, terms, 1);
  session.Offer(std::vector<float>(size, 0.5f));
  const auto store = MakeAsyncServerStore(session, false);
  AlignedBuffer<float> gradient(size);
  std::fill(gradient.begin(), gradient.end(), 1e-3f);
  std::vector<double> times;
  for (const double end = Now() + budget; Now() < end;) {
    const double start = Now();
    store->Pull();
    store->Push(gradient.span(), {.learning_rate = 1e-6f});
    times.push_back(Now() - start);
  }
  const double median = Median(times), bytes = static_cast<double>(2 * size * sizeof(float));
  fmt::print("{:<6}{:<10}{:>10}{:>12.1f}{:>12.0f}\n", name, keeps ? "folder" : "memory", size * sizeof(float),
             1e6 * median, 1e-6 * bytes / median);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  if (argc < 2) {
    fmt::print(stderr, "usage: server_bench <trireme> [seconds per row]\n");
    return 2;
  }
  const double budget = argc > 2 ? std::atof(argv[2]) : 2;
  fmt::print("push and pull of all parameters, Adam, medians\n");
  fmt::print("{:<6}{:<10}{:>10}{:>12}{:>12}\n", "", "keeps in", "bytes", "us", "MB/s");
  const std::string socket = fmt::format("unix:/tmp/server_bench-{}.sock", getpid());
  for (const std::size_t size : {5'000, 262'144}) {
    for (const bool keeps : {false, true}) {
      PrintRow(argv[1], "tcp", "127.0.0.1:17171", keeps, size, budget);
      PrintRow(argv[1], "unix", socket, keeps, size, budget);
    }
  }
}
