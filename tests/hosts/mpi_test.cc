// mpirun over four hosts: it starts processes by a remote shell, they find each other by the network, and a
// cable that is cut ends the run.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "hosts_test_util.h"
#include "launch.h"

namespace trireme::testing {
namespace {

constexpr double kEverybodyEnds_s = 60;

class HostsUnderMpi : public HostsTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    mpirun_ = MpirunOf(GetParam());
    if (mpirun_.empty()) GTEST_SKIP() << "mpirun." << GetParam() << " is not installed";
    if (!std::filesystem::exists(std::filesystem::path(kBinary).parent_path() /
                                 (std::string("libtrireme_mpi_") + GetParam() + ".so"))) {
      GTEST_SKIP() << "built without " << GetParam();
    }
    HostsTest::SetUp();
    if (!IsSkipped()) network_->WriteShell(Path("shell"));
  }

  // Starts mpirun on the first host. `hosts` as on its command line: address:processes,...
  std::unique_ptr<Process> Start(const std::string& hosts, const Args& train) const {
    const auto set = [](const char* key, const std::string& value) { return Args{"--mca", key, value}; };
    Args args;
    if (std::string(GetParam()) == "openmpi") {
      args =
          Args{"--allow-run-as-root", "--bind-to", "none", "--host", hosts, "-x", "TRIREME_MPI_TIMEOUT=3"} +
          set("plm_rsh_agent", Path("shell")) + set("orte_tmpdir_base", folder_.string()) +
          // mpirun itself notices that a host is gone by keepalive alone, and by default after eight minutes.
          set("oob_tcp_keepalive_time", "2") + set("oob_tcp_keepalive_intvl", "1") +
          set("oob_tcp_keepalive_probes", "2");
    } else {
      args = {"-launcher", "ssh", "-launcher-exec", Path("shell"),         "-iface", "eth0",
              "-hosts",    hosts, "-genv",          "TRIREME_MPI_TIMEOUT", "3"};
    }
    return network_->Start(1, mpirun_, args + Args{"-n", "4", kBinary} + train + Args{"--workers", "1"});
  }
  static std::string Hosts(int number, const std::string& processes) {
    std::string list;
    for (int i = 1; i <= number; ++i) {
      if (i > 1) list += ',';
      list += Network::Address(i) + ":" + processes;
    }
    return list;
  }
  // Processes on all hosts, by name.
  std::vector<std::string> Running() const {
    std::vector<std::string> names;
    for (int i = 1; i <= kHosts; ++i) {
      for (const pid_t pid : network_->host(i).Processes()) {
        std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
        std::string name;
        if (std::getline(comm, name)) names.push_back(name + " on host " + std::to_string(i));
      }
    }
    return names;
  }
  // What is still running, of those whose name begins with `name`, when they have had their time.
  std::vector<std::string> Remaining(const std::string& name) const {
    std::vector<std::string> left;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kEverybodyEnds_s);
    do {
      left = Running();
      std::erase_if(left, [&](const std::string& other) { return !other.starts_with(name); });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } while (!left.empty() && std::chrono::steady_clock::now() < deadline);
    return left;
  }

  std::string mpirun_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, HostsUnderMpi, ::testing::Values("openmpi", "mpich"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(HostsUnderMpi, TheSameBitsOnOneHostAndOnSeveral) {
  Json alone = FinishedRun("threads", {"--workers", "4"});
  for (const auto& [hosts, processes] : {std::pair{4, "1"}, std::pair{2, "2"}}) {
    const std::string name = "on" + std::to_string(hosts);
    const std::uint64_t before = network_->passed_bytes();
    Json spread = ResultOf(Start(Hosts(hosts, processes), SmallRun(name))->Wait());
    for (const char* key : {"workers", "steps", "params_sha256", "eval_return_mean"}) {
      EXPECT_EQ(spread[key], alone[key]) << key << " on " << hosts << " hosts";
    }
    ExpectLinksAreNoBetterThan(cable(), spread);
    EXPECT_TRUE(TimelessRows(Path(name)) == TimelessRows(Path("threads"))) << "metrics of " << Path(name);
    // The gradient of 9184 parameters in 160 updates, at the very least, has gone over the network.
    EXPECT_GE(network_->passed_bytes() - before, 160u * 9184 * sizeof(float)) << hosts << " hosts";
  }
}

TEST_P(HostsUnderMpi, ACutCableEndsTheRunAndItGoesOnWhenTheCableIsMended) {
  const auto run = [&](const std::string& name) {
    return Set(SmallRun(name), {"steps=10240", "checkpoint_every_s=0"});
  };
  Json whole = ResultOf(RunTrireme(run("whole") + Args{"--workers", "4"}));
  const std::unique_ptr<Process> cut = Start(Hosts(4, "1"), run("cut"));
  ASSERT_TRUE(cut->RunsUntil([&] { return MetricLines("cut") >= 3; }));
  network_->Cut(3);
  const Outcome outcome = cut->Wait(kEverybodyEnds_s);
  EXPECT_GT(outcome.code, 0);
  EXPECT_NE(outcome.err.find(" waited 3 s for process 2 on node3 in "), std::string::npos) << outcome.err;
  // Also on the host that cannot be told.
  EXPECT_EQ(Remaining("trireme"), std::vector<std::string>());
  network_->Mend(3);
  EXPECT_EQ(Remaining(""), std::vector<std::string>());

  ASSERT_FALSE(Checkpoints(Path("cut")).empty());
  EXPECT_LT(TimelessRows(Path("cut")).size(), TimelessRows(Path("whole")).size());
  Json resumed = ResultOf(Start(Hosts(4, "1"), {"train", "--resume", Path("cut"), "--json"})->Wait());
  EXPECT_EQ(resumed["params_sha256"], whole["params_sha256"]);
  EXPECT_TRUE(TimelessRows(Path("cut")) == TimelessRows(Path("whole"))) << "metrics of " << Path("cut");
}

}  // namespace
}  // namespace trireme::testing
