// A search on one host, workers that run its trials on others, and a cable that is cut.
#include <algorithm>
#include <csignal>
#include <sstream>

#include "hosts_test_util.h"

namespace trireme::testing {
namespace {

class HostsWithSearch : public HostsTest {
 protected:
  void SetUp() override {
    HostsTest::SetUp();
    if (!IsSkipped()) WriteText(Path("token"), "a-secret-of-all-hosts\n");
  }
  Args Token() const { return {"--token-file", Path("token")}; }
  std::unique_ptr<Process> StartSearch(const Args& more) const {
    return network_->Start(
        1, kBinary,
        Args{"tune", "--env", "CartPole-v1", "--study", Path("s.db"), "--listen", Network::Address(1) + ":0",
             "--seeds", "1", "--parallel", "0", "--json", "--objective", "steps_to_target"} +
            Token() + more);
  }
  std::unique_ptr<Process> StartWorker(int host) const {
    return network_->Start(host, kBinary,
                           Args{"tune", "--join", Path("s.db"), "--parallel", "1", "--wait", "30"} + Token());
  }
};

TEST_F(HostsWithSearch, AHostThatVanishesLosesNothing) {
  const auto search =
      StartSearch({"--trials", "40", "--steps", "8192", "--target", "400", "--finalists", "0"});
  ASSERT_TRUE(search->RunsUntil([&] { return std::filesystem::exists(Path("s.address")); }));
  const auto lost = StartWorker(2), other = StartWorker(3);
  ASSERT_TRUE(lost->RunsUntil([&] { return lost->Err().find("joined") != std::string::npos; }))
      << lost->Err();
  ASSERT_TRUE(other->RunsUntil([&] { return other->Err().find("joined") != std::string::npos; }));
  network_->Cut(2);  // nobody is told
  const auto newcomer = StartWorker(4);
  const Outcome outcome = search->Wait();
  const Json result = ResultOf(outcome);
  EXPECT_EQ(result["trials"], 40);
  EXPECT_EQ(result["failed"], 0);
  EXPECT_EQ(other->Wait().code, 0);
  EXPECT_EQ(newcomer->Wait().code, 0);
  network_->Mend(2);
  lost->Signal(SIGTERM);
  lost->Wait();
}

}  // namespace
}  // namespace trireme::testing
