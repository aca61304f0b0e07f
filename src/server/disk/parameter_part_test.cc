#include "trireme/server/disk/parameter_part.h"

#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "trireme/server/disk/last_sequences.h"
#include "trireme/server/disk/part_test_util.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Against optimizers over the same slices, for every kind.
class PartRule : public testing::TestWithParam<OptimizerKind> {};

INSTANTIATE_TEST_SUITE_P(All, PartRule,
                         testing::Values(OptimizerKind::kSgd, OptimizerKind::kMomentum,
                                         OptimizerKind::kAdagrad, OptimizerKind::kRmsprop,
                                         OptimizerKind::kAdam, OptimizerKind::kAdamw),
                         [](const auto& info) { return std::string(OptimizerName(info.param)); });

TEST_P(PartRule, PiecesGiveTheBitsOfOneOptimizer) {
  constexpr std::size_t kSize = 5000;
  constexpr std::size_t kCuts[] = {0, 1, 1024, 2500, kSize};
  constexpr float kScales[] = {0.5f, 1.0f, 0.25f, 0.75f};  // of groups
  const ParameterGroups groups = {{0, 1, 0.02f}, {900, 2600, 0.03f}, {2600, 2700, 0}, {4999, 5000, 0.04f}};
  OptimizerSettings settings = {.kind = GetParam()};
  settings.weight_decay = 0.02;
  Optimizer optimizer(settings, kSize);
  std::vector<float> params = Noise(kSize, 1000);
  std::vector<std::unique_ptr<ParameterPart>> parts;
  for (std::size_t i = 0; i + 1 < std::size(kCuts); ++i) {
    const PartSetup setup = {"", settings, kCuts[i], kCuts[i + 1] - kCuts[i]};
    parts.push_back(std::make_unique<ParameterPart>(setup, PartStorage{},
                                                    std::span(params).subspan(setup.begin, setup.size)));
  }
  for (std::uint64_t t = 1; t <= 70; ++t) {  // beyond the 64 after which moments are flushed
    const float scale = t % 3 == 0 ? 0.37f : 1.0f;
    const std::vector<float> gradient = Noise(kSize, t);
    std::vector<float> scaled = gradient;
    ForEachGroup(0, kSize, groups.all(),
                 [&](std::size_t first, std::size_t last, const ParameterGroup* group) {
                   const float factor = group == nullptr ? scale : kScales[group - groups.all().data()];
                   for (std::size_t i = first; i < last; ++i) scaled[i] *= factor;
                 });
    optimizer.Step(params, scaled, 0.01f, groups);
    for (const auto& part : parts) {
      PartUpdate update = {.worker = 1, .sequence = t, .steps = 0, .scale = scale, .learning_rate = 0.01f};
      for (std::size_t g = 0; g < groups.size(); ++g) {
        update.groups.Append({groups[g].begin, groups[g].end, groups[g].learning_rate, kScales[g]});
      }
      part->Apply(update, std::span(gradient).subspan(part->setup().begin, part->setup().size));
    }
  }
  StateWriter out;
  optimizer.Save(out, "optimizer");
  const StateReader saved(std::move(out).Encode());
  for (const auto& part : parts) {
    const auto own = [&](std::span<const float> all) {
      return all.subspan(part->setup().begin, part->setup().size);
    };
    EXPECT_EQ(part->version(), 70u);
    EXPECT_TRUE(SameBits(part->params(), own(params)));
    for (std::size_t m = 0; m < part->moment_count(); ++m) {
      std::vector<float> moments(kSize);
      saved.Get<float>(fmt::format("optimizer/moment{}", m), moments);
      EXPECT_TRUE(SameBits(part->moments(m), own(moments)));
    }
  }
}

TEST_P(PartRule, GoesOnFromGivenMoments) {
  Course course(100, GetParam());
  ParameterPart first(course.setup(), {}, course.Start());
  course.Run(first, 5);
  std::vector<float> moments;
  for (std::size_t m = 0; m < first.moment_count(); ++m) {
    moments.insert(moments.end(), first.moments(m).begin(), first.moments(m).end());
  }
  ParameterPart second(course.setup(), {}, first.params(), moments, first.version(), first.steps());
  course.Run(second, 9);
  EXPECT_TRUE(SameBits(second.params(), course.After(9)));
  EXPECT_EQ(second.steps(), 45);
}

class PartRecovery : public PartFolderTest, public testing::WithParamInterface<OptimizerKind> {};
INSTANTIATE_TEST_SUITE_P(All, PartRecovery,
                         testing::Values(OptimizerKind::kSgd, OptimizerKind::kRmsprop, OptimizerKind::kAdam),
                         [](const auto& info) { return std::string(OptimizerName(info.param)); });

// Ends after every single update, with logs of every length between.
TEST_P(PartRecovery, AtAnyPointHasTheSameBits) {
  Course course(37, GetParam());
  for (const std::uint64_t log_bytes : {0, 3000, 1 << 20}) {
    const PartStorage storage = Storage(log_bytes);
    std::make_unique<ParameterPart>(course.setup(), storage, course.Start());
    for (std::uint64_t version = 0; version < 70; ++version) {
      const std::unique_ptr<ParameterPart> part = ParameterPart::Recover(storage);
      ASSERT_NE(part, nullptr);
      ASSERT_EQ(part->version(), version);
      course.Expect(*part);
      course.Run(*part, version + 1);
    }
    fs::remove_all(storage.folder);
  }
}

// Updates with marks, some of which are undone; recovered after every single change, from logs of every length.
TEST_P(PartRecovery, GoesBackToTheLastMarkAtAnyPoint) {
  for (const std::uint64_t log_bytes : {0, 3000, 1 << 20}) {
    PartStorage storage = Storage(log_bytes);
    storage.audit = root_ / "audit";
    Course course(37, GetParam());
    std::make_unique<ParameterPart>(course.setup(), storage, course.Start());
    // What is applied to it is what has not been undone.
    ParameterPart expected(course.setup(), {}, course.Start());
    std::uint64_t version = 0, mark = 0;
    std::int64_t steps = 0;
    const auto with_part = [&](const std::function<void(ParameterPart&)>& change) {
      const std::unique_ptr<ParameterPart> part = ParameterPart::Recover(storage);
      change(*part);
      EXPECT_EQ(part->version(), version);
      EXPECT_EQ(part->steps(), steps);
    };
    for (int iteration = 0; iteration < 12; ++iteration, ++mark) {
      const bool undone = iteration % 3 == 1;
      for (std::uint64_t i = 0; i < 5; ++i) {
        PartUpdate update = Course::Update(version + 1);
        update.mark = mark;
        steps += update.steps;
        const std::vector<float> gradient = course.Gradient(++version);
        if (!undone) expected.Apply(update, gradient, "a note");
        with_part([&](ParameterPart& part) { part.Apply(update, gradient, "a note"); });
      }
      with_part([&](ParameterPart& part) {
        EXPECT_EQ(part.last_mark(), mark);
        EXPECT_FALSE(part.GoBack(mark + 1));
        EXPECT_FALSE(part.GoBack(mark - 1));
        if (!undone) return;
        EXPECT_TRUE(part.GoBack(mark));
        ++version;
        EXPECT_FALSE(part.GoBack(mark)) << "nothing was made since";
        EXPECT_EQ(part.NoteOf("update"), "");
      });
      with_part([&](ParameterPart& part) {
        EXPECT_EQ(part.updates(), expected.updates());
        EXPECT_TRUE(SameBits(part.params(), expected.params())) << "at mark " << mark;
        for (std::size_t m = 0; m < part.moment_count(); ++m)
          EXPECT_TRUE(SameBits(part.moments(m), expected.moments(m))) << m;
      });
    }
    fs::remove_all(storage.folder);
    fs::remove(storage.audit);
  }
}

TEST_F(PartTest, EverythingIsRecovered) {
  PartSetup setup = course_.setup();
  setup.identity = "an identity\nof two lines";
  setup.begin = 40;
  setup.optimizer.beta1 = 0.8;
  setup.optimizer.eps = 1e-3;
  for (const bool from_snapshot : {false, true}) {
    const PartStorage storage = Storage(from_snapshot ? 0 : 1 << 20);
    std::vector<float> first, second;
    {
      ParameterPart part(setup, storage, course_.Start(), Noise(38, 99), 1000, 5000);
      part.Note("rounds", "one");
      part.Apply({.worker = 8, .sequence = 3, .steps = 7, .learning_rate = 0.1f}, course_.Gradient(1));
      part.Note("empty", "");
      part.Note("rounds", std::string("t\0wo", 4));
      for (std::uint64_t i = 0; i < 100 && from_snapshot; ++i) part.Note("more", std::string(300, 'x'));
      first.assign(part.moments(0).begin(), part.moments(0).end());
      second.assign(part.moments(1).begin(), part.moments(1).end());
    }
    const std::unique_ptr<ParameterPart> part = ParameterPart::Recover(storage);
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(part->setup().identity, setup.identity);
    EXPECT_EQ(part->setup().begin, 40u);
    EXPECT_EQ(part->setup().size, 19u);
    EXPECT_EQ(part->setup().optimizer.kind, OptimizerKind::kAdam);
    EXPECT_EQ(part->setup().optimizer.beta1, 0.8);
    EXPECT_EQ(part->setup().optimizer.eps, 1e-3);
    EXPECT_EQ(part->version(), 1001u);
    EXPECT_EQ(part->steps(), 5007);
    EXPECT_EQ(part->LastSequence(8), 3u);
    EXPECT_EQ(part->LastSequence(9), 0u);
    EXPECT_EQ(part->NoteOf("rounds"), std::string("t\0wo", 4));
    EXPECT_EQ(part->NoteOf("update"), "");
    EXPECT_EQ(part->NoteOf("none"), "");
    EXPECT_TRUE(SameBits(part->moments(0), first));
    EXPECT_TRUE(SameBits(part->moments(1), second));
    fs::remove_all(storage.folder);
  }
}

TEST_F(PartTest, SnapshotsAreMadeOnlyWhenTheLogIsLong) {
  const PartStorage storage = Storage(40 * kRecord);
  const auto part = Made(0, storage);
  // A snapshot is a new file every time, made while the one before is there.
  const auto written = [&] {
    struct stat file {};
    EXPECT_EQ(::stat(Snapshot().c_str(), &file), 0);
    return file.st_ino;
  };
  const auto first = written();
  course_.Run(*part, 39);  // the next one makes the log too long, and a snapshot is begun beside it
  EXPECT_EQ(written(), first);
  int snapshots = 0;
  auto last = first;
  for (std::uint64_t version = 40; version <= 400; ++version) {
    course_.Run(*part, version);
    snapshots += written() != last;
    last = written();
  }
  EXPECT_GE(snapshots, 1);
  EXPECT_LE(snapshots, 10);
  // Four times as much as wanted while a snapshot takes long, in files that grow to their double.
  EXPECT_LE(fs::file_size(Log(0)) + fs::file_size(Log(1)), 9 * 40 * kRecord);
}

TEST_F(PartTest, NoneIsRecoveredWhereNoneWas) {
  EXPECT_EQ(ParameterPart::Recover({}), nullptr);
  EXPECT_EQ(ParameterPart::Recover(Storage()), nullptr);
  fs::create_directories(Storage().folder);
  EXPECT_EQ(ParameterPart::Recover(Storage()), nullptr);
}

// Killed while it was made: logs are there, and perhaps a part of the snapshot.
TEST_F(PartTest, AnUnfinishedBeginningIsNoPart) {
  Made(0);
  fs::rename(Snapshot(), Snapshot().string() + ".tmp");
  EXPECT_EQ(ParameterPart::Recover(Storage()), nullptr);
  Made(3);
  EXPECT_EQ(Recovered(), 3u);
}

TEST_F(PartTest, AFolderHasOneOwner) {
  auto part = Made(1);
  EXPECT_TRUE(Mentions(Refusal([&] { ParameterPart::Recover(Storage()); }), "another server uses"));
  EXPECT_TRUE(Mentions(Refusal([&] { Made(0); }), "another server uses"));
  course_.Run(*part, 2);
  part.reset();
  EXPECT_TRUE(Mentions(Refusal([&] { Made(0); }), "holds another part"));
  EXPECT_EQ(Recovered(), 2u);
}

TEST_F(PartTest, ALeftoverOfAnInterruptedSnapshotDoesNotMatter) {
  Made(2);
  Overwrite(Snapshot().string() + ".tmp", "half");
  EXPECT_EQ(Recovered(), 2u);
  const auto part = ParameterPart::Recover(Storage(0));
  course_.Run(*part, 60);
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

TEST_F(PartTest, ThousandsOfWorkersAreRecovered) {
  const std::uint64_t workers = LastSequences::kMost + 100;
  const std::vector<float> params(1), gradient(1);
  PartSetup setup = course_.setup();
  setup.size = 1;
  {
    ParameterPart part(setup, Storage(100'000), params);
    for (std::uint64_t worker = 1; worker <= workers; ++worker) {
      part.Apply({.worker = worker, .sequence = worker + 7}, gradient);
    }
  }
  const auto part = ParameterPart::Recover(Storage());
  for (std::uint64_t worker = 1; worker <= workers; ++worker) {
    ASSERT_EQ(part->LastSequence(worker), worker <= 100 ? 0 : worker + 7) << worker;
  }
}

}  // namespace
}  // namespace trireme
