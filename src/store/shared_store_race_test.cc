// Workers of a shared store that push at once.
#include <algorithm>

#include "trireme/comm/run_ranks.h"
#include "trireme/store/shared_store_test_util.h"

namespace trireme {
namespace {

// All numbers are multiples of 1/64 that floats hold exactly, so every parameter tells how many pushes it has
// seen. Some may have been overwritten, but no value may be anything else; and a pair of floats travels
// together.
TEST(SharedStore, FreeRunningPushesMayGetLostButTearNothing) {
  constexpr int kWorkers = 4, kPushes = 500, kTotal = kWorkers * kPushes;
  constexpr std::size_t kSize = 3 * 1024 + 37;
  std::vector<float> start(kSize), gradient(kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    start[i] = static_cast<float>(i % 17);
    gradient[i] = static_cast<float>(1 + i % 3) * (i % 5 == 0 ? -1.0f : 1.0f);
  }
  // Pushes that element i has seen, or -1.
  const auto count = [&](std::span<const float> params, std::size_t i) {
    const float k = (start[i] - params[i]) * 64 / gradient[i];
    return k >= 0 && k <= kTotal && k == std::floor(k) ? static_cast<int>(k) : -1;
  };
  const auto wrong = [&](std::span<const float> params, int least) {
    int wrong = 0;
    for (std::size_t i = 0; i < kSize; ++i) wrong += count(params, i) < least;
    for (std::size_t i = 0; i + 1 < kSize; i += 2) wrong += count(params, i) != count(params, i + 1);
    return wrong;
  };
  SharedParameters parameters({.kind = OptimizerKind::kSgd}, false, start);
  std::vector<std::unique_ptr<ParameterStore>> stores;
  for (int w = 0; w < kWorkers; ++w) stores.push_back(MakeSharedStore(parameters, w, nullptr));
  std::vector<std::thread> threads;
  for (int w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      int seen_wrong = 0;
      for (int push = 0; push < kPushes; ++push) {
        seen_wrong += wrong(stores[w]->Pull(), push == 0 ? 0 : 1);
        std::vector<float> own = gradient;
        stores[w]->Push(own, {.learning_rate = 1.0f / 64, .max_grad_norm = 0});
        seen_wrong += wrong(stores[w]->params(), 1);
      }
      EXPECT_EQ(seen_wrong, 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong(stores[0]->Pull(), 1), 0);
  EXPECT_EQ(StateReader(Saved(*stores[0])).GetValue<std::uint64_t>("store/versions"), std::uint64_t{kTotal});
  Staleness all;
  for (const auto& store : stores) all += store->staleness();
  EXPECT_EQ(all.count(), std::uint64_t{kTotal});
}

// Adam divides one moment by the root of the other. If a worker could see the first after a push and the
// second before it, a parameter whose gradients had been zero so far would be moved by m / eps. With one
// constant gradient the moments tell how many pushes made them: both must tell the same.
TEST(SharedStore, FreeRunningPushesKeepTheMomentsOfAnElementTogether) {
  constexpr int kWorkers = 4, kPushes = 500, kTotal = kWorkers * kPushes;
  constexpr std::size_t kSize = 3 * 1024 + 37;
  const OptimizerSettings slow{.beta1 = 0.999, .beta2 = 0.9995};  // no two of kTotal moments are the same
  std::vector<std::pair<float, float>> after = {{0.0f, 0.0f}};    // moments after 0, 1, ... pushes
  {
    SharedParameters alone(slow, true, std::vector<float>(1));
    const auto store = MakeSharedStore(alone, 0, nullptr);
    for (int push = 0; push < kTotal; ++push) {
      std::vector<float> gradient = {0.5f};
      store->Push(gradient, kPlain);
      const StateReader in(Saved(*store));
      after.emplace_back(in.GetValue<float>("optimizer/moment0"), in.GetValue<float>("optimizer/moment1"));
    }
  }
  SharedParameters parameters(slow, true, std::vector<float>(kSize));
  std::vector<std::unique_ptr<ParameterStore>> stores;
  for (int w = 0; w < kWorkers; ++w) stores.push_back(MakeSharedStore(parameters, w, nullptr));
  std::vector<std::thread> threads;
  for (int w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      std::vector<float> gradient(kSize, 0.5f);
      for (int push = 0; push < kPushes; ++push) stores[w]->Push(gradient, kPlain);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<float> first(kSize), second(kSize);
  const StateReader in(Saved(*stores[0]));
  in.Get<float>("optimizer/moment0", first);
  in.Get<float>("optimizer/moment1", second);
  for (std::size_t i = 0; i < kSize; ++i) {
    const std::pair<float, float> moments = {first[i], second[i]};
    ASSERT_NE(std::find(after.begin() + 1, after.end(), moments), after.end())
        << "element " << i << ": " << first[i] << ", " << second[i];
  }
}

}  // namespace
}  // namespace trireme
