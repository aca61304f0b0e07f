#include "trireme/server/disk/shard.h"

#include <algorithm>
#include <memory>

#include "trireme/server/disk/last_sequences.h"
#include "trireme/server/disk/shard_test_util.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Against optimizers over the same slices, for every kind.
class ShardRule : public testing::TestWithParam<OptimizerKind> {};

INSTANTIATE_TEST_SUITE_P(All, ShardRule,
                         testing::Values(OptimizerKind::kSgd, OptimizerKind::kMomentum,
                                         OptimizerKind::kAdagrad, OptimizerKind::kRmsprop,
                                         OptimizerKind::kAdam, OptimizerKind::kAdamw),
                         [](const auto& info) { return std::string(OptimizerName(info.param)); });

TEST_P(ShardRule, PiecesGiveTheBitsOfOneOptimizer) {
  constexpr std::size_t kSize = 5000;
  constexpr std::size_t kCuts[] = {0, 1, 1024, 2500, kSize};
  const RateRange special = {.begin = 900, .end = 2600, .learning_rate = 0.03f};
  OptimizerSettings settings = {.kind = GetParam()};
  settings.weight_decay = 0.02;
  Optimizer optimizer(settings, kSize);
  std::vector<float> params = Noise(kSize, 1000);
  std::vector<std::unique_ptr<Shard>> shards;
  for (std::size_t i = 0; i + 1 < std::size(kCuts); ++i) {
    const ShardSetup setup = {"", settings, kCuts[i], kCuts[i + 1] - kCuts[i]};
    shards.push_back(
        std::make_unique<Shard>(setup, ShardStorage{}, std::span(params).subspan(setup.begin, setup.size)));
  }
  for (std::uint64_t t = 1; t <= 70; ++t) {  // beyond the 64 after which moments are flushed
    const float scale = t % 3 == 0 ? 0.37f : 1.0f;
    const std::vector<float> gradient = Noise(kSize, t);
    std::vector<float> scaled = gradient;
    for (float& g : scaled) g = scale == 1 ? g : scale * g;
    optimizer.Step(params, scaled, 0.01f, special);
    for (const auto& shard : shards) {
      const ShardUpdate update = {
          .worker = 1, .sequence = t, .steps = 0, .scale = scale, .learning_rate = 0.01f, .special = special};
      shard->Apply(update, std::span(gradient).subspan(shard->setup().begin, shard->setup().size));
    }
  }
  for (const auto& shard : shards) {
    EXPECT_EQ(shard->version(), 70u);
    EXPECT_TRUE(
        SameBits(shard->params(), std::span(params).subspan(shard->setup().begin, shard->setup().size)));
  }
}

TEST_P(ShardRule, GoesOnFromGivenMoments) {
  Course course(100, GetParam());
  Shard first(course.setup(), {}, course.Start());
  course.Run(first, 5);
  std::vector<float> moments;
  for (std::size_t m = 0; m < first.moment_count(); ++m) {
    moments.insert(moments.end(), first.moments(m).begin(), first.moments(m).end());
  }
  Shard second(course.setup(), {}, first.params(), moments, first.version(), first.steps());
  course.Run(second, 9);
  EXPECT_TRUE(SameBits(second.params(), course.After(9)));
  EXPECT_EQ(second.steps(), 45);
}

class ShardRecovery : public ShardFolderTest, public testing::WithParamInterface<OptimizerKind> {};
INSTANTIATE_TEST_SUITE_P(All, ShardRecovery,
                         testing::Values(OptimizerKind::kSgd, OptimizerKind::kRmsprop, OptimizerKind::kAdam),
                         [](const auto& info) { return std::string(OptimizerName(info.param)); });

// Ends after every single update, with logs of every length between.
TEST_P(ShardRecovery, AtAnyPointHasTheSameBits) {
  Course course(37, GetParam());
  for (const std::uint64_t log_bytes : {0, 3000, 1 << 20}) {
    const ShardStorage storage = Storage(log_bytes);
    std::make_unique<Shard>(course.setup(), storage, course.Start());
    for (std::uint64_t version = 0; version < 70; ++version) {
      const std::unique_ptr<Shard> shard = Shard::Recover(storage);
      ASSERT_NE(shard, nullptr);
      ASSERT_EQ(shard->version(), version);
      course.Expect(*shard);
      course.Run(*shard, version + 1);
    }
    fs::remove_all(storage.folder);
  }
}

TEST_F(ShardTest, EverythingIsRecovered) {
  ShardSetup setup = course_.setup();
  setup.identity = "an identity\nof two lines";
  setup.begin = 40;
  setup.optimizer.beta1 = 0.8;
  setup.optimizer.eps = 1e-3;
  for (const bool from_snapshot : {false, true}) {
    const ShardStorage storage = Storage(from_snapshot ? 0 : 1 << 20);
    std::vector<float> first, second;
    {
      Shard shard(setup, storage, course_.Start(), Noise(38, 99), 1000, 5000);
      shard.Note("rounds", "one");
      shard.Apply({.worker = 8, .sequence = 3, .steps = 7, .learning_rate = 0.1f}, course_.Gradient(1));
      shard.Note("empty", "");
      shard.Note("rounds", std::string("t\0wo", 4));
      for (std::uint64_t i = 0; i < 100 && from_snapshot; ++i) shard.Note("more", std::string(300, 'x'));
      first.assign(shard.moments(0).begin(), shard.moments(0).end());
      second.assign(shard.moments(1).begin(), shard.moments(1).end());
    }
    const std::unique_ptr<Shard> shard = Shard::Recover(storage);
    ASSERT_NE(shard, nullptr);
    EXPECT_EQ(shard->setup().identity, setup.identity);
    EXPECT_EQ(shard->setup().begin, 40u);
    EXPECT_EQ(shard->setup().size, 19u);
    EXPECT_EQ(shard->setup().optimizer.kind, OptimizerKind::kAdam);
    EXPECT_EQ(shard->setup().optimizer.beta1, 0.8);
    EXPECT_EQ(shard->setup().optimizer.eps, 1e-3);
    EXPECT_EQ(shard->version(), 1001u);
    EXPECT_EQ(shard->steps(), 5007);
    EXPECT_EQ(shard->LastSequence(8), 3u);
    EXPECT_EQ(shard->LastSequence(9), 0u);
    EXPECT_EQ(shard->NoteOf("rounds"), std::string("t\0wo", 4));
    EXPECT_EQ(shard->NoteOf("update"), "");
    EXPECT_EQ(shard->NoteOf("none"), "");
    EXPECT_TRUE(SameBits(shard->moments(0), first));
    EXPECT_TRUE(SameBits(shard->moments(1), second));
    fs::remove_all(storage.folder);
  }
}

TEST_F(ShardTest, SnapshotsAreMadeOnlyWhenTheLogIsLong) {
  const ShardStorage storage = Storage(40 * kRecord);
  const auto shard = Made(0, storage);
  // A snapshot is a new file every time.
  const auto written = [&] { return fs::last_write_time(Snapshot()); };
  const auto first = written();
  course_.Run(*shard, 40);
  EXPECT_EQ(written(), first);
  int snapshots = 0;
  auto last = first;
  for (std::uint64_t version = 41; version <= 400; ++version) {
    course_.Run(*shard, version);
    snapshots += written() != last;
    last = written();
  }
  EXPECT_GE(snapshots, 1);
  EXPECT_LE(snapshots, 10);
  EXPECT_LE(fs::file_size(Log(0)) + fs::file_size(Log(1)), 6 * 40 * kRecord);
}

TEST_F(ShardTest, NoneIsRecoveredWhereNoneWas) {
  EXPECT_EQ(Shard::Recover({}), nullptr);
  EXPECT_EQ(Shard::Recover(Storage()), nullptr);
  fs::create_directories(Storage().folder);
  EXPECT_EQ(Shard::Recover(Storage()), nullptr);
}

// Killed while it was made: logs are there, and perhaps a part of the snapshot.
TEST_F(ShardTest, AnUnfinishedBeginningIsNoShard) {
  Made(0);
  fs::rename(Snapshot(), Snapshot().string() + ".tmp");
  EXPECT_EQ(Shard::Recover(Storage()), nullptr);
  Made(3);
  EXPECT_EQ(Recovered(), 3u);
}

TEST_F(ShardTest, AFolderHasOneOwner) {
  auto shard = Made(1);
  EXPECT_TRUE(Mentions(Refusal([&] { Shard::Recover(Storage()); }), "another server uses"));
  EXPECT_TRUE(Mentions(Refusal([&] { Made(0); }), "another server uses"));
  course_.Run(*shard, 2);
  shard.reset();
  EXPECT_TRUE(Mentions(Refusal([&] { Made(0); }), "holds another shard"));
  EXPECT_EQ(Recovered(), 2u);
}

TEST_F(ShardTest, ALeftoverOfAnInterruptedSnapshotDoesNotMatter) {
  Made(2);
  Overwrite(Snapshot().string() + ".tmp", "half");
  EXPECT_EQ(Recovered(), 2u);
  const auto shard = Shard::Recover(Storage(0));
  course_.Run(*shard, 60);
  EXPECT_FALSE(fs::exists(Snapshot().string() + ".tmp") && ReadFile(Snapshot().string() + ".tmp") == "half");
}

TEST(LastSequences, TheLongestSilentAreForgotten) {
  LastSequences sequences;
  const std::uint64_t most = LastSequences::kMost;
  for (std::uint64_t worker = 0; worker < most; ++worker) sequences.Set({1000 - worker, 5, worker + 1});
  sequences.Set({1000, 6, most + 1});  // the first is heard again
  sequences.Set({5000, 1, most + 2});
  EXPECT_EQ(sequences.entries().size(), most);
  EXPECT_EQ(sequences.Of(1000), 6u);
  EXPECT_EQ(sequences.Of(999), 0u);
  EXPECT_EQ(sequences.Of(998), 5u);
  EXPECT_EQ(sequences.Of(5000), 1u);
}

TEST_F(ShardTest, ThousandsOfWorkersAreRecovered) {
  const std::uint64_t workers = LastSequences::kMost + 100;
  const std::vector<float> params(1), gradient(1);
  ShardSetup setup = course_.setup();
  setup.size = 1;
  {
    Shard shard(setup, Storage(100'000), params);
    for (std::uint64_t worker = 1; worker <= workers; ++worker) {
      shard.Apply({.worker = worker, .sequence = worker + 7}, gradient);
    }
  }
  const auto shard = Shard::Recover(Storage());
  for (std::uint64_t worker = 1; worker <= workers; ++worker) {
    ASSERT_EQ(shard->LastSequence(worker), worker <= 100 ? 0 : worker + 7) << worker;
  }
}

}  // namespace
}  // namespace trireme
