#include "trireme/train/account.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

WorkerAccount Sample(std::uint64_t pushes) {
  WorkerAccount account;
  account.facts = {.steps = 7, .busy_s = 1.5, .idle_s = 0.5};
  account.traffic = {.bytes = 100, .messages = 3, .idle_s = 0.5, .pushes = pushes};
  account.staleness.Add(2);
  account.inference.batches.Add(12);
  account.inference.latency_us.Add(300);
  account.cpu_s = 9;
  account.env = {.count = 2, .last = "a host has ended", .last_s = 1e9 + 0.5, .warning = "out of bounds"};
  ProcessLink link{.latency_s = 1e-3, .bytes_per_s = 1e6, .bytes = 2'000'000, .messages = 5, .waited_s = 3};
  link.SetName("host:1");
  account.links = {link, link};
  return account;
}

TEST(WorkerAccount, SurvivesTheJourney) {
  const WorkerAccount sent = Sample(4), received = WorkerAccount::Decode(sent.Encode());
  EXPECT_EQ(received.Encode(), sent.Encode());
  EXPECT_EQ(received.facts.steps, 7);
  EXPECT_EQ(received.staleness.most, 2u);
  EXPECT_EQ(received.env.count, 2);
  EXPECT_EQ(received.env.last, "a host has ended");
  EXPECT_EQ(received.env.last_s, 1e9 + 0.5);
  EXPECT_EQ(received.env.warning, "out of bounds");
  ASSERT_EQ(received.links.size(), 2u);
  EXPECT_STREQ(received.links[1].to, "host:1");
}

TEST(WorkerAccount, RoundsAreCommonOnlyInStep) {
  const std::vector<WorkerAccount> accounts = {Sample(4), Sample(4), Sample(3)};
  EXPECT_EQ(RoundsOf(accounts, true), 11u);
  EXPECT_EQ(RoundsOf(accounts, false), 4u);  // one was missing once
}

TEST(WorkerAccount, LinksShowEstimateBesideTimeWaited) {
  RunFacts facts;
  AddAccounts({WorkerAccount(), Sample(4)}, true, facts);
  ASSERT_EQ(facts.links.size(), 2u);
  EXPECT_EQ(facts.links[0].worker, 1);
  EXPECT_DOUBLE_EQ(facts.links[0].estimate_s, 5 * 1e-3 + 2);
  EXPECT_EQ(facts.links[0].waited_s, 3);
  EXPECT_EQ(facts.staleness, (std::vector<std::uint64_t>{0, 0, 1}));
}

TEST(WorkerAccount, InferenceIsThatOfAllProcesses) {
  RunFacts facts;
  AddAccounts({Sample(4), WorkerAccount(), WorkerAccount::Decode(Sample(4).Encode())}, false, facts);
  EXPECT_EQ(facts.inference_batches, (std::vector<std::uint64_t>{0, 0, 0, 2}));
  EXPECT_EQ(facts.inference_batch_mean, 12);
  EXPECT_EQ(facts.inference_latency_us, (std::vector<std::uint64_t>{0, 0, 0, 0, 0, 0, 0, 0, 2}));
  EXPECT_EQ(facts.inference_latency_us_mean, 300);
}

// Each process tells of its own; the last one is the last by the clock, whoever comes last in the list.
TEST(WorkerAccount, FailuresOfEnvironmentsAreThoseOfAllProcesses) {
  std::vector<WorkerAccount> accounts(4);
  accounts[1].env = {.count = 3, .last = "later", .last_s = 200, .warning = "first"};
  accounts[2].env = {.count = 2, .last = "earlier", .last_s = 100, .warning = "second"};
  RunFacts facts;
  AddAccounts(accounts, false, facts);
  EXPECT_EQ(facts.env_failures, 5);
  EXPECT_EQ(facts.env_last_failure, "later");
  EXPECT_EQ(facts.env_warning, "first");
  RunFacts none;
  AddAccounts({WorkerAccount()}, true, none);
  EXPECT_EQ(none.env_failures, 0);
  EXPECT_EQ(none.env_last_failure, "");
}

}  // namespace
}  // namespace trireme
