#include "server/shard.h"

#include <sys/mount.h>

#include <algorithm>
#include <memory>

#include "server/last_sequences.h"
#include "server/shard_test_util.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class ShardTest : public ShardFolderTest {
 protected:
  // A course of `updates` in a folder of its own. Records take 256 bytes.
  std::unique_ptr<Shard> Made(std::uint64_t updates, const ShardStorage& storage) {
    auto shard = std::make_unique<Shard>(course_.setup(), storage, course_.Start());
    course_.Run(*shard, updates);
    return shard;
  }
  std::unique_ptr<Shard> Made(std::uint64_t updates) { return Made(updates, Storage()); }
  // The version that is recovered, with everything as it was at that version.
  std::uint64_t Recovered(const ShardStorage& storage) {
    const std::unique_ptr<Shard> shard = Shard::Recover(storage);
    if (shard == nullptr) {
      ADD_FAILURE() << "there is no shard";
      return 0;
    }
    course_.Expect(*shard);
    return shard->version();
  }
  std::uint64_t Recovered() { return Recovered(Storage()); }

  static constexpr std::size_t kRecord = 256;
  Course course_{19};
};

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

// Killed between the change of logs and the end of the snapshot: the old snapshot, and changes in both logs.
TEST_F(ShardTest, GoesThroughBothLogsWhenTheSnapshotWasNotFinished) {
  const ShardStorage storage = Storage(20 * kRecord);
  const std::string old = [&] {
    Made(0, storage);
    return ReadFile(Snapshot());
  }();
  course_.Run(*Shard::Recover(storage), 30);
  ASSERT_NE(ReadFile(Snapshot()), old);
  Overwrite(Snapshot(), old);
  EXPECT_EQ(Recovered(storage), 30u);
  // And again, and killed again and again in the same state.
  for (std::uint64_t version = 31; version < 100; ++version) {
    const auto shard = Shard::Recover(storage);
    ASSERT_EQ(shard->version(), version - 1);
    course_.Run(*shard, version);
  }
  EXPECT_EQ(Recovered(storage), 99u);
}

TEST_F(ShardTest, ALogCutAtAnyByteLosesOnlyWhatIsCut) {
  constexpr std::size_t kUpdates = 4;
  Made(kUpdates);
  const std::size_t needed = 128 + 19 * 4 + 6;  // of a record; zeros follow
  for (std::size_t size = kUpdates * kRecord; size >= 2 * kRecord; --size) {
    fs::resize_file(Log(0), size);
    ASSERT_EQ(Recovered(), size / kRecord + (size % kRecord >= needed)) << size;
  }
}

// What a cut or a torn record left is written over.
TEST_F(ShardTest, GoesOnAfterATornRecord) {
  Made(4);
  const std::string whole = ReadFile(Log(0));
  for (const std::size_t torn : {1, 100, 130, 200}) {
    std::string bytes = whole;
    std::fill_n(bytes.begin() + 3 * kRecord + static_cast<std::ptrdiff_t>(torn), kRecord - torn, 'x');
    Overwrite(Log(0), bytes);
    const auto shard = Shard::Recover(Storage());
    ASSERT_EQ(shard->version(), 3u);
    shard->Note("short", "");
    course_.Run(*shard, 6);
  }
  EXPECT_EQ(Recovered(), 6u);
}

TEST_F(ShardTest, DamageInTheMiddleIsNamedAndTheAdviceHelps) {
  Made(5);
  const std::string whole = ReadFile(Log(0));
  for (std::size_t byte = 0; byte < 4 * kRecord; byte += 7) {
    if (byte % kRecord >= 128 + 19 * 4 + 6) continue;  // zeros
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 1 << byte % 8);
    Overwrite(Log(0), damaged);
    const std::string message = Refusal([&] { Shard::Recover(Storage()); });
    const std::size_t start = byte / kRecord * kRecord;
    ASSERT_TRUE(Mentions(message, fmt::format("{} is damaged at byte {}", Log(0).string(), start)))
        << message;
    ASSERT_TRUE(Mentions(message, fmt::format("truncate -s {} {}", start, Log(0).string()))) << message;
    ASSERT_EQ(ReadFile(Log(0)), damaged) << "a refusal changes nothing";
    fs::resize_file(Log(0), start);
    ASSERT_EQ(Recovered(), byte / kRecord);
  }
}

TEST_F(ShardTest, ChangesMissingBetweenTheLogsAreNoticed) {
  const ShardStorage storage = Storage(20 * kRecord);
  const std::string old = [&] {
    Made(0, storage);
    return ReadFile(Snapshot());
  }();
  course_.Run(*Shard::Recover(storage), 30);  // some in log 0, the rest in log 1
  Overwrite(Snapshot(), old);
  const std::string first = ReadFile(Log(0));
  fs::resize_file(Log(0), 10 * kRecord);
  std::string message = Refusal([&] { Shard::Recover(storage); });
  EXPECT_TRUE(Mentions(message, "changes 11 to ")) << message;
  EXPECT_TRUE(Mentions(message, "truncate -s 0 " + Log(1).string())) << message;
  // A damaged first record hides the whole log.
  std::string damaged = first;
  damaged[50] ^= 1;
  Overwrite(Log(0), damaged);
  message = Refusal([&] { Shard::Recover(storage); });
  EXPECT_TRUE(Mentions(message, Log(0).string() + " is damaged at byte 0")) << message;

  fs::resize_file(Log(0), 0);
  fs::resize_file(Log(1), 0);
  EXPECT_EQ(Recovered(storage), 0u);
}

TEST_F(ShardTest, ADamagedSnapshotIsRefused) {
  Made(3);
  const std::string whole = ReadFile(Snapshot());
  for (std::size_t byte = 0; byte < whole.size(); byte += 11) {
    std::string damaged = whole;
    damaged[byte] ^= 4;
    Overwrite(Snapshot(), damaged);
    ASSERT_TRUE(Mentions(Refusal([&] { Shard::Recover(Storage()); }), Snapshot().string())) << byte;
    Overwrite(Snapshot(), whole.substr(0, byte));
    ASSERT_TRUE(Mentions(Refusal([&] { Shard::Recover(Storage()); }), Snapshot().string())) << byte;
  }
  std::string other = whole;
  other.replace(other.find("version 1"), 9, "version 2");
  Overwrite(Snapshot(), other);
  EXPECT_TRUE(Mentions(Refusal([&] { Shard::Recover(Storage()); }), "'version 2'"));
  Overwrite(Snapshot(), whole);
  EXPECT_EQ(Recovered(), 3u);
}

TEST_F(ShardTest, MissingFilesAreRefused) {
  Made(3);
  const fs::path away = root_ / "away";
  fs::rename(Log(0), away);
  EXPECT_TRUE(Mentions(Refusal([&] { Shard::Recover(Storage()); }), Log(0).string() + " is missing"));
  fs::rename(away, Log(0));
  fs::rename(Snapshot(), away);
  EXPECT_TRUE(Mentions(Refusal([&] { Shard::Recover(Storage()); }), Snapshot().string() + " is missing"));
  EXPECT_TRUE(Mentions(Refusal([&] { Made(0); }), Snapshot().string() + " is missing"));
  fs::rename(away, Snapshot());
  EXPECT_EQ(Recovered(), 3u);
}

TEST_F(ShardTest, TheLogOfAnotherShardIsRefused) {
  Made(3);
  const std::string log = ReadFile(Log(0));
  fs::remove_all(Storage().folder);
  Made(3);
  Overwrite(Log(0), log);
  EXPECT_TRUE(Mentions(Refusal([&] { Shard::Recover(Storage()); }), "another shard"));
}

// The disk is full for a while: with every length of log, whatever is due.
TEST_F(ShardTest, AFailedWriteChangesNothingAndCanBeRepeated) {
  ShardStorage storage = Storage(20 * kRecord);
  storage.audit = root_ / "audit";
  auto shard = Made(10, storage);
  int failures = 0;
  for (std::uint64_t version = 11; version < 200; ++version) {
    if (version % 10 == 0) {
      const FileSizeLimit full(700);  // less than a snapshot, and than most of a log
      const std::string message = Refusal([&] { course_.Run(*shard, version); });
      if (!message.empty()) {
        ++failures;
        EXPECT_TRUE(Mentions(message, Storage().folder.string()) || Mentions(message, storage.audit.string()))
            << message;
        ASSERT_EQ(shard->version(), version - 1);
        course_.Expect(*shard);
        EXPECT_EQ(ReadFile(storage.audit), AuditOf(version - 1));
      }
    }
    course_.Run(*shard, version);
  }
  EXPECT_GT(failures, 5);
  shard.reset();
  EXPECT_EQ(Recovered(storage), 199u);
  EXPECT_EQ(ReadFile(storage.audit), AuditOf(199));
}

class ShardOnAFullDisk : public ShardTest {
 protected:
  void SetUp() override {
    fs::create_directories(disk_);
    mounted_ = ::mount("tmpfs", disk_.c_str(), "tmpfs", 0, "size=256k") == 0;
    if (!mounted_) GTEST_SKIP() << "needs the right to mount a small disk";
  }
  void TearDown() override { EXPECT_TRUE(!mounted_ || ::umount2(disk_.c_str(), MNT_DETACH) == 0); }
  const fs::path disk_ = root_ / "disk";
  bool mounted_ = false;
};

TEST_F(ShardOnAFullDisk, ARealOne) {
  ShardStorage storage = Storage(1 << 20);
  storage.folder = disk_ / "shard";
  EXPECT_TRUE(Mentions(Refusal([&] { Made(0, storage); }), "Make room")) << "two logs do not fit";
  EXPECT_EQ(Shard::Recover(storage), nullptr);

  storage.log_bytes = 20 * kRecord;
  auto shard = Made(10, storage);
  const fs::path filler = disk_ / "filler";
  Overwrite(filler, std::string(1 << 20, 'x'));
  // Logs that were made with room go on for a while; then something has to give.
  std::string message;
  while (message.empty() && shard->version() < 1000) {
    message = Refusal([&] { course_.Run(*shard, shard->version() + 1); });
  }
  EXPECT_TRUE(Mentions(message, "No space left on device")) << message;
  EXPECT_TRUE(Mentions(message, disk_.string())) << message;
  EXPECT_GE(shard->version(), 20u);
  course_.Expect(*shard);
  const std::uint64_t version = shard->version();
  shard.reset();
  EXPECT_EQ(Recovered(storage), version) << "while the disk is full";

  shard = Shard::Recover(storage);
  EXPECT_NE(Refusal([&] { course_.Run(*shard, version + 100); }), "");
  fs::remove(filler);
  course_.Run(*shard, version + 100);
  shard.reset();
  EXPECT_EQ(Recovered(storage), version + 100);
}

TEST_F(ShardTest, DurableChangesAreRecoveredToo) {
  ShardStorage storage = Storage(20 * kRecord);
  storage.durable = true;
  Made(60, storage);
  EXPECT_EQ(Recovered(storage), 60u);
}

// A device takes every byte but cannot be flushed. What the disk then has of the log is not known, so that a
// snapshot comes before anything else.
TEST_F(ShardTest, AFlushThatFailsChangesNothingAndTheLogIsNotTrustedAnyMore) {
  ShardStorage storage = Storage();
  storage.durable = true;
  storage.audit = root_ / "audit";
  Made(0, storage);
  fs::rename(Log(0), root_ / "away");
  fs::create_symlink("/dev/null", Log(0));
  {
    const auto shard = Shard::Recover(storage);
    const auto written = fs::last_write_time(Snapshot());
    EXPECT_TRUE(Mentions(Refusal([&] { course_.Run(*shard, 1); }), Log(0).string()));
    EXPECT_EQ(fs::last_write_time(Snapshot()), written);
    course_.Expect(*shard);
    EXPECT_EQ(shard->version(), 0u);
    EXPECT_EQ(ReadFile(storage.audit), "");
    EXPECT_TRUE(Mentions(Refusal([&] { course_.Run(*shard, 1); }), Log(0).string()));
    EXPECT_NE(fs::last_write_time(Snapshot()), written);
  }
  fs::rename(root_ / "away", Log(0));
  course_.Run(*Shard::Recover(storage), 3);
  EXPECT_EQ(Recovered(storage), 3u);
  EXPECT_EQ(ReadFile(storage.audit), AuditOf(3));
}

TEST_F(ShardTest, TheAuditIsCutBackToWhatWasRecovered) {
  ShardStorage storage = Storage(20 * kRecord);
  storage.audit = root_ / "audit";
  Made(50, storage);
  EXPECT_EQ(ReadFile(storage.audit), AuditOf(50));
  // Killed between the audit and the log, and in the middle of a line.
  Overwrite(storage.audit, AuditOf(51) + "5");
  EXPECT_EQ(Recovered(storage), 50u);
  EXPECT_EQ(ReadFile(storage.audit), AuditOf(50));
  // A loss of power takes lines of what the log still has.
  Overwrite(storage.audit, AuditOf(49));
  EXPECT_EQ(Recovered(storage), 50u);
  EXPECT_EQ(ReadFile(storage.audit), AuditOf(50));
}

TEST_F(ShardTest, AnAuditMayBeginLaterAndIsNotMixedUp) {
  ShardStorage storage = Storage();
  storage.audit = root_ / "audit";
  Made(5);
  Overwrite(storage.audit, "something else\n");
  EXPECT_TRUE(Mentions(Refusal([&] { Shard::Recover(storage); }), storage.audit.string()));
  EXPECT_EQ(ReadFile(storage.audit), "something else\n");
  fs::remove(storage.audit);
  for (std::uint64_t version = 6; version <= 9; ++version) {
    course_.Run(*Shard::Recover(storage), version);
    EXPECT_EQ(ReadFile(storage.audit), AuditOf(version, 6));
  }
  // Gone: what the log still has is written again.
  fs::remove(storage.audit);
  course_.Run(*Shard::Recover(storage), 11);
  EXPECT_EQ(ReadFile(storage.audit), AuditOf(11, 6));
  Overwrite(storage.audit, "12 of another shard\n");
  EXPECT_TRUE(Mentions(Refusal([&] { Shard::Recover(storage); }), "not the audit of this shard"));
  EXPECT_EQ(ReadFile(storage.audit), "12 of another shard\n");
  Overwrite(storage.audit, AuditOf(11, 6));
  EXPECT_EQ(Recovered(storage), 11u);

  // Gone after a snapshot: a new one begins.
  ShardStorage short_log = storage;
  short_log.log_bytes = 0;
  course_.Run(*Shard::Recover(short_log), 100);
  EXPECT_EQ(ReadFile(storage.audit), AuditOf(100, 6));
  Overwrite(storage.audit, "100 of another shard\n");
  EXPECT_TRUE(Mentions(Refusal([&] { Shard::Recover(storage); }), "not the audit of this shard"));
  fs::remove(storage.audit);
  for (std::uint64_t version = 101; version <= 103; ++version) {
    course_.Run(*Shard::Recover(storage), version);
    EXPECT_EQ(ReadFile(storage.audit), AuditOf(version, 101));
  }

  const ShardStorage memory_only = {.folder = {}, .durable = false, .audit = root_ / "other", .log_bytes = 0};
  Made(7, memory_only);
  EXPECT_EQ(ReadFile(memory_only.audit), AuditOf(7));
  EXPECT_TRUE(Mentions(Refusal([&] { Made(0, memory_only); }), "another audit"));
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
