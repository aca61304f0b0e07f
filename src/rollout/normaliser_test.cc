#include "trireme/rollout/normaliser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "trireme/base/rng.h"

namespace trireme {
namespace {

using Sample = std::vector<float>;

// Features of very different means and scales.
std::vector<Sample> MakeSamples(int n, int features) {
  RandomStream random(11, Purpose::kTest, 0, 0);
  std::vector<Sample> samples(n, Sample(features));
  for (Sample& sample : samples) {
    for (int i = 0; i < features; ++i) {
      sample[i] = static_cast<float>(100 * i - 50 + std::pow(5.0, i - 1) * random.NextNormal());
    }
  }
  return samples;
}

std::vector<double> SumsOf(const Normaliser& normaliser, const std::vector<Sample>& samples,
                           std::size_t begin, std::size_t end) {
  std::vector<double> sums(normaliser.sums_size());
  for (std::size_t i = begin; i < end; ++i) normaliser.AddTo(sums, samples[i].data());
  return sums;
}

std::vector<float> Applied(const Normaliser& normaliser, const Sample& x) {
  std::vector<float> y(x.size());
  normaliser.Apply(x.data(), y.data());
  return y;
}

struct Moments {
  std::vector<double> mean, deviation;
};
Moments Direct(const std::vector<Sample>& samples) {
  const std::size_t features = samples[0].size();
  Moments m{std::vector<double>(features), std::vector<double>(features)};
  const auto n = static_cast<double>(samples.size());
  for (const Sample& s : samples) {
    for (std::size_t i = 0; i < features; ++i) m.mean[i] += s[i] / n;
  }
  for (const Sample& s : samples) {
    for (std::size_t i = 0; i < features; ++i) m.deviation[i] += std::pow(s[i] - m.mean[i], 2) / n;
  }
  for (double& d : m.deviation) d = std::sqrt(d);
  return m;
}

TEST(Normaliser, ChangesNothingBeforeTheFirstMerge) {
  const Normaliser normaliser(3, true, 1000);
  EXPECT_EQ(Applied(normaliser, {1, -20, 300}), (Sample{1, -20, 300}));
}

TEST(Normaliser, MergedStatisticsAreThoseOfAllSamples) {
  constexpr int kFeatures = 3;
  const std::vector<Sample> samples = MakeSamples(1000, kFeatures);
  const Moments expected = Direct(samples);
  // Batches of unequal sizes; the third is empty.
  Normaliser normaliser(kFeatures, true, 1000);
  const std::size_t cuts[] = {0, 7, 400, 400, 401, 1000};
  for (int i = 0; i < 5; ++i) normaliser.Merge(SumsOf(normaliser, samples, cuts[i], cuts[i + 1]));
  const Sample at_mean(expected.mean.begin(), expected.mean.end());
  for (int i = 0; i < kFeatures; ++i) {
    EXPECT_NEAR(Applied(normaliser, at_mean)[i], 0, 1e-4);
    EXPECT_NEAR(normaliser.Scale(i) * expected.deviation[i], 1, 1e-5);
  }
  Sample above = at_mean;
  above[1] += static_cast<float>(2 * expected.deviation[1]);
  EXPECT_NEAR(Applied(normaliser, above)[1], 2, 1e-4);
}

// The sums of eight shards, added pairwise, whoever computes which: identical bits.
TEST(Normaliser, ShardsMayBeSplitOverAnyWorkers) {
  const std::vector<Sample> samples = MakeSamples(80, 2);
  const Normaliser fresh(2, true, 1000);
  const auto add = [](std::vector<double> a, const std::vector<double>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  };
  const auto shard = [&](int s) { return SumsOf(fresh, samples, 10 * s, 10 * s + 10); };
  const auto pair = [&](int s) { return add(shard(s), shard(s + 1)); };
  const auto four = [&](int s) { return add(pair(s), pair(s + 2)); };
  Normaliser one_worker(2, true, 1000), two_workers(2, true, 1000);
  one_worker.Merge(add(four(0), four(4)));
  const std::vector<double> second = four(4);  // computed first, by another worker
  two_workers.Merge(add(four(0), second));
  for (const Sample& s : samples) EXPECT_EQ(Applied(one_worker, s), Applied(two_workers, s));

  // One sum over all samples in a row agrees up to rounding.
  Normaliser direct(2, true, 1000);
  direct.Merge(SumsOf(direct, samples, 0, 80));
  for (const Sample& s : samples) {
    EXPECT_NEAR(Applied(one_worker, s)[0], Applied(direct, s)[0], 1e-5);
    EXPECT_NEAR(Applied(one_worker, s)[1], Applied(direct, s)[1], 1e-5);
  }
}

TEST(Normaliser, WithoutCentringOnlyTheScaleIsDividedOut) {
  Normaliser normaliser(1, false, 1000);
  const std::vector<Sample> samples = {{98}, {102}};  // mean 100, deviation 2
  normaliser.Merge(SumsOf(normaliser, samples, 0, 2));
  EXPECT_NEAR(Applied(normaliser, {10})[0], 5, 1e-5);
}

TEST(Normaliser, ClipsBothSides) {
  Normaliser normaliser(1, true, 10);
  const std::vector<Sample> samples = {{-1}, {1}};
  normaliser.Merge(SumsOf(normaliser, samples, 0, 2));
  EXPECT_EQ(Applied(normaliser, {1e6f})[0], 10.0f);
  EXPECT_EQ(Applied(normaliser, {-1e6f})[0], -10.0f);
  EXPECT_NEAR(Applied(normaliser, {9})[0], 9, 1e-5);
}

// Rounding must not turn the variance of a feature that never changes into a negative number.
TEST(Normaliser, AConstantFeatureStaysFinite) {
  RandomStream random(12, Purpose::kTest, 0, 0);
  for (int i = 0; i < 100; ++i) {
    const auto value = static_cast<float>(std::pow(10.0, i % 10) * (1 + random.NextUniform()));
    Normaliser normaliser(1, true, 10);
    const std::vector<Sample> samples(203, Sample{value});
    normaliser.Merge(SumsOf(normaliser, samples, 0, samples.size()));
    EXPECT_TRUE(std::isfinite(normaliser.Scale(0))) << value;
    EXPECT_NEAR(Applied(normaliser, {value})[0], 0, 1e-3) << value;
  }
}

TEST(Normaliser, SaveAndLoadContinuesBitForBit) {
  const std::vector<Sample> samples = MakeSamples(60, 2);
  Normaliser original(2, true, 10);
  original.Merge(SumsOf(original, samples, 0, 40));
  StateWriter out;
  original.Save(out, "n");
  const StateReader in(out.Encode());
  Normaliser loaded(2, true, 10);
  loaded.Load(in, "n");
  EXPECT_EQ(Applied(loaded, samples[0]), Applied(original, samples[0]));
  original.Merge(SumsOf(original, samples, 40, 60));
  loaded.Merge(SumsOf(loaded, samples, 40, 60));
  EXPECT_EQ(Applied(loaded, samples[0]), Applied(original, samples[0]));

  Normaliser other(3, true, 10);
  EXPECT_THROW(other.Load(in, "n"), Error);
}

TEST(Normaliser, LoadingAFreshOneChangesNothing) {
  StateWriter out;
  Normaliser(1, true, 10).Save(out, "n");
  Normaliser loaded(1, true, 10);
  loaded.Load(StateReader(out.Encode()), "n");
  EXPECT_EQ(Applied(loaded, {3})[0], 3.0f);
}

}  // namespace
}  // namespace trireme
