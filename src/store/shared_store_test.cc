#include "trireme/store/shared_store.h"

#include "trireme/comm/run_ranks.h"
#include "trireme/store/shared_store_test_util.h"

namespace trireme {
namespace {

INSTANTIATE_TEST_SUITE_P(Optimizers, SharedStoreAlone,
                         testing::Combine(testing::Values(OptimizerKind::kSgd, OptimizerKind::kMomentum,
                                                          OptimizerKind::kAdagrad, OptimizerKind::kRmsprop,
                                                          OptimizerKind::kAdam, OptimizerKind::kAdamw),
                                          testing::Bool()),
                         KindAndSharing);

// With and without clipping, and with groups that begin and end inside tiles or at their edges.
UpdateRule RuleOf(int push, std::size_t size) {
  UpdateRule rule{.learning_rate = kRate / static_cast<float>(1 + push % 7),
                  .max_grad_norm = push % 2 == 0 ? 0.5 : 0.0};
  if (push % 3 == 1) rule.groups.Add({.begin = size / 5, .end = size - size / 5, .learning_rate = 0.003f});
  if (push % 3 == 2 && size > 4200) {
    rule.groups = {{7, 900, 0.02f, 0.3}, {1024, 2048, 0.03f}, {2048, 4097, 0}, {4100, 4200, 0.01f, 0.1}};
  }
  return rule;
}

TEST_P(SharedStoreAlone, EqualsTheLocalStoreBitForBit) {
  constexpr int kPushes = 200, kGradients = 16;
  const OptimizerSettings optimizer{.kind = kind_, .weight_decay = 0.01};
  for (const std::size_t size : {1, 2, 37, 1023, 1024, 1025, 5000}) {
    ThreadGroup group(1);
    ThreadCommunicator comm(group, 0);
    const auto local = MakeAllReduceStore(comm, optimizer, Initial(size));
    SharedParameters parameters(optimizer, share_moments_, Initial(size));
    const auto shared = MakeSharedStore(parameters, 0, nullptr);
    EXPECT_TRUE(SameBits(shared->params(), Initial(size)));
    std::vector<std::vector<float>> gradients;
    for (int i = 0; i < kGradients; ++i) gradients.push_back(Draw(1, i, size + kStats));
    for (int push = 0; push < kPushes; ++push) {
      ASSERT_TRUE(SameBits(shared->Pull(), local->Pull())) << "size " << size << ", push " << push;
      std::vector<float> ours = gradients[push % kGradients], theirs = ours;
      const UpdateRule rule = RuleOf(push, size);
      ASSERT_EQ(shared->Push(ours, rule), local->Push(theirs, rule));
      ASSERT_TRUE(SameBits(ours, theirs));
      ASSERT_TRUE(
          SameBits(std::span(ours).last(kStats), std::span(gradients[push % kGradients]).last(kStats)));
      ASSERT_TRUE(SameBits(shared->params(), local->params())) << "size " << size << ", push " << push;
    }
    EXPECT_FALSE(SameBits(shared->params(), Initial(size)));
    EXPECT_EQ(shared->staleness().pushes[0], std::uint64_t{kPushes});
    EXPECT_EQ(shared->staleness().count(), std::uint64_t{kPushes});
  }
}

TEST_P(SharedStoreAlone, AGroupOfRateZeroIsUntouched) {
  constexpr std::size_t kSize = 5000, kBegin = 1024, kEnd = 4096;
  const OptimizerSettings optimizer{.kind = kind_, .weight_decay = 0.01};
  SharedParameters parameters(optimizer, share_moments_, Initial(kSize));
  const auto store = MakeSharedStore(parameters, 0, nullptr);
  const auto moments = [&] {
    StateWriter out;
    store->Save(out);
    const StateReader in(std::move(out).Encode());
    std::vector<std::vector<float>> all;
    for (int m = 0; in.Has(fmt::format("optimizer/moment{}", m)); ++m) {
      all.emplace_back(kSize);
      in.Get<float>(fmt::format("optimizer/moment{}", m), std::span(all.back()));
    }
    return all;
  };
  const auto inside = [](std::span<const float> values) { return values.subspan(kBegin, kEnd - kBegin); };
  std::vector<float> gradient = Draw(1, 0, kSize);
  store->Push(gradient, {.learning_rate = kRate});
  const std::vector<float> before(store->params().begin(), store->params().end());
  const auto moments_before = moments();
  for (int push = 1; push < 70; ++push) {
    gradient = Draw(1, push, kSize);
    store->Push(gradient, {.learning_rate = kRate, .groups = {{kBegin, kEnd, 0}}});
  }
  EXPECT_TRUE(SameBits(inside(store->Pull()), inside(before)));
  EXPECT_FALSE(SameBits(store->params().first(kBegin), std::span(before).first(kBegin)));
  const auto moments_after = moments();
  for (std::size_t m = 0; m < moments_before.size(); ++m) {
    EXPECT_TRUE(SameBits(inside(moments_after[m]), inside(moments_before[m])));
    EXPECT_FALSE(SameBits(moments_after[m], moments_before[m]));
  }
}

// What a worker leaves alone it does not write either: each of the two is the only one to write its part, and
// no update is lost, of parameters and of moments, wherever in a tile or a pair the parts meet.
TEST(SharedStore, WorkersOfDifferentGroupsDoNotDisturbEachOther) {
  constexpr std::size_t kSize = 3000;
  constexpr int kPushes = 5000;
  const std::vector<float> gradient(kSize, 1.0f);
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kAdagrad, OptimizerKind::kAdam}) {
    const auto push_all = [&](SharedParameters& parameters, int rank, const UpdateRule& rule) {
      const auto store = MakeSharedStore(parameters, rank, nullptr);
      std::vector<float> own(kSize);
      for (int push = 0; push < kPushes; ++push) {
        own = gradient;
        store->Push(own, rule);
      }
    };
    SharedParameters alone({.kind = kind}, true, std::vector<float>(kSize));
    push_all(alone, 0, {.learning_rate = 1.0f / 1024});
    const std::string expected = Saved(*MakeSharedStore(alone, 0, nullptr));
    for (const std::size_t split : {std::size_t{2048}, std::size_t{1500}, std::size_t{1501}}) {
      SCOPED_TRACE(fmt::format("{} {}", OptimizerName(kind), split));
      SharedParameters parameters({.kind = kind}, true, std::vector<float>(kSize));
      RunRanks(2, [&](Communicator& comm) {
        const auto [begin, end] =
            comm.rank() == 0 ? std::pair(split, kSize) : std::pair(std::size_t{0}, split);
        comm.Barrier();
        push_all(parameters, comm.rank(), {.learning_rate = 1.0f / 1024, .groups = {{begin, end, 0}}});
      });
      const StateReader found(Saved(*MakeSharedStore(parameters, 0, nullptr))), wanted(expected);
      if (kind != OptimizerKind::kAdam) {  // whose steps depend on how many pushes there were
        EXPECT_TRUE(found.GetText("params") == wanted.GetText("params"));
      }
      for (int m = 0; wanted.Has(fmt::format("optimizer/moment{}", m)); ++m) {
        const std::string name = fmt::format("optimizer/moment{}", m);
        EXPECT_TRUE(found.GetText(name) == wanted.GetText(name)) << name;
      }
    }
  }
}

TEST(SharedStore, APullAndAPushAreAMessageOfAllParametersEach) {
  SharedParameters parameters({}, true, Initial());
  const auto store = MakeSharedStore(parameters, 0, nullptr);
  EXPECT_EQ(store->traffic().messages, 0u);
  store->Pull();
  EXPECT_EQ(store->traffic().messages, 1u);
  EXPECT_EQ(store->traffic().bytes, kParams * 4);
  std::vector<float> gradient = Draw(0, 0, kParams + kStats);
  store->Push(gradient, kPlain);
  EXPECT_EQ(store->traffic().messages, 2u);
  EXPECT_EQ(store->traffic().bytes, kParams * 8);
  store->Refresh();
  EXPECT_EQ(store->traffic().messages, 2u);
  EXPECT_EQ(store->traffic().bytes, kParams * 8);
}

TEST(SharedStore, RefreshShowsThePushesOfOthersWithoutATurn) {
  SharedParameters parameters({.kind = OptimizerKind::kSgd}, false, std::vector<float>(2, 10.0f));
  Schedule schedule("0< 0> 1< 1>", 2);
  const auto pushing = MakeSharedStore(parameters, 0, &schedule);
  const auto watching = MakeSharedStore(parameters, 1, &schedule);
  pushing->Pull();
  watching->Refresh();
  std::vector<float> gradient = {1, 2};
  pushing->Push(gradient, {.learning_rate = 1, .max_grad_norm = 0});
  EXPECT_EQ(Copy(watching->params()), (std::vector<float>{10, 10}));
  watching->Refresh();
  EXPECT_EQ(Copy(watching->params()), (std::vector<float>{9, 8}));
  EXPECT_EQ(Copy(watching->Pull()), (std::vector<float>{9, 8}));
}

TEST(SharedStore, AssignReplacesTheParameters) {
  SharedParameters parameters({}, true, Initial());
  const auto store = MakeSharedStore(parameters, 0, nullptr);
  const std::vector<float> others = Draw(101, 0, kParams);
  parameters.Assign(others);
  EXPECT_TRUE(SameBits(store->params(), Initial()));
  EXPECT_TRUE(SameBits(store->Pull(), others));
}

TEST(SharedStore, ShareLeavesValuesAsTheyAre) {
  SharedParameters parameters({}, true, Initial());
  const auto store = MakeSharedStore(parameters, 0, nullptr);
  std::vector<double> values = {1, 2.5};
  store->Share(values);
  EXPECT_EQ(values, (std::vector<double>{1, 2.5}));
}

// A push also brings the worker's parameters up to date, so only pushes of others make the next one stale.
TEST(SharedStore, PushesWithoutPullsCountOnlyThoseOfOthersAsStale) {
  SharedParameters parameters({}, true, Initial());
  const auto one = MakeSharedStore(parameters, 0, nullptr);
  const auto other = MakeSharedStore(parameters, 1, nullptr);
  const auto push = [](ParameterStore& store) {
    std::vector<float> gradient = Draw(0, 0, kParams);
    store.Push(gradient, kPlain);
  };
  one->Pull();
  for (int i = 0; i < 3; ++i) push(*one);
  EXPECT_EQ(one->staleness().sum, 0u);
  other->Pull();
  for (int i = 0; i < 2; ++i) push(*other);
  push(*one);
  push(*one);
  EXPECT_EQ(other->staleness().sum, 0u);
  EXPECT_EQ(one->staleness().pushes[0], 4u);
  EXPECT_EQ(one->staleness().pushes[2], 1u);
}

void ExpectRefused(const StateReader& in, SharedParameters&& parameters, const std::string& why) {
  const auto store = MakeSharedStore(parameters, 0, nullptr);
  const std::string before = Saved(*store);
  try {
    store->Load(in);
    ADD_FAILURE() << "loaded, although: " << why;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  }
  EXPECT_EQ(Saved(*store), before);
}

TEST(SharedStore, StateOfAnotherKindIsRefused) {
  const OptimizerSettings adam;
  for (const bool share : {false, true}) {
    SharedParameters parameters(adam, share, Initial());
    const auto store = MakeSharedStore(parameters, 0, nullptr);
    std::vector<float> gradient = Draw(0, 0, kParams);
    store->Push(gradient, kPlain);
    const StateReader in(Saved(*store));
    ExpectRefused(in, SharedParameters({.kind = OptimizerKind::kAdamw}, share, Initial()), "'adam'");
    ExpectRefused(in, SharedParameters({.kind = OptimizerKind::kSgd}, share, Initial()), "'adam'");
    ExpectRefused(in, SharedParameters(adam, share, Initial(kParams + 1)), "another network");
    ExpectRefused(in, SharedParameters(adam, share, Initial(kParams - 1)), "another network");
    ExpectRefused(in, SharedParameters(adam, !share, Initial()), fmt::format("share_moments = {}", share));
  }
}

}  // namespace
}  // namespace trireme
