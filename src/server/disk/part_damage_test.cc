// Files of a part that were cut, torn, damaged or mixed up.
#include <algorithm>

#include "trireme/server/disk/part_log.h"
#include "trireme/server/disk/part_snapshot.h"
#include "trireme/server/disk/part_test_util.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Killed between the change of logs and the end of the snapshot: the old snapshot, and changes in both logs.
TEST_F(PartTest, GoesThroughBothLogsWhenTheSnapshotWasNotFinished) {
  const PartStorage storage = Storage(20 * kRecord);
  const std::string old = [&] {
    Made(0, storage);
    return ReadFile(Snapshot());
  }();
  course_.Run(*ParameterPart::Recover(storage), 30);
  ASSERT_NE(ReadFile(Snapshot()), old);
  Overwrite(Snapshot(), old);
  EXPECT_EQ(Recovered(storage), 30u);
  // And again, and killed again and again in the same state.
  for (std::uint64_t version = 31; version < 100; ++version) {
    const auto part = ParameterPart::Recover(storage);
    ASSERT_EQ(part->version(), version - 1);
    course_.Run(*part, version);
  }
  EXPECT_EQ(Recovered(storage), 99u);
}

// Nothing acknowledged is lost without a word; accepted, everything before the cut is found.
TEST_F(PartTest, ALogCutAtAnyByteIsRefusedUnlessNothingWasLost) {
  constexpr std::size_t kUpdates = 4;
  Made(kUpdates);
  const std::string whole = ReadFile(Log(0));
  const std::size_t end = kLogBegin + kUpdates * kRecord;
  const std::size_t needed = 128 + 24 + 19 * 4 + 6;  // of a record; zeros follow
  PartStorage accepting = Storage();
  accepting.accept_loss = true;
  const std::string snapshot = ReadFile(Snapshot()), other = ReadFile(Log(1));
  for (std::size_t size = end + 200;; --size) {
    Overwrite(Log(0), whole.substr(0, size));
    if (size >= end + 128) {
      ASSERT_EQ(Recovered(), kUpdates) << size;
    } else {
      const std::string message = Refusal([&] { ParameterPart::Recover(Storage()); });
      ASSERT_TRUE(Mentions(message, fmt::format("{} was cut to {} bytes", Log(0).string(), size))) << message;
      ASSERT_TRUE(Mentions(message, "--accept-loss")) << message;
      ASSERT_EQ(ReadFile(Log(0)), whole.substr(0, size)) << "a refusal changes nothing";
      if (size % 31 != 0) continue;
      const std::size_t records = size < kLogBegin ? 0 : size - kLogBegin;
      ASSERT_EQ(Recovered(accepting), records / kRecord + (records % kRecord >= needed)) << size;
      ASSERT_EQ(Recovered(), records / kRecord + (records % kRecord >= needed)) << "and from now on";
    }
    if (size == 0) break;
    Overwrite(Snapshot(), snapshot);
    Overwrite(Log(1), other);
  }
}

// A file that goes on after a harmless cut says its new length.
TEST_F(PartTest, GoesOnAfterAHarmlessCut) {
  Made(4);
  fs::resize_file(Log(0), kLogBegin + 4 * kRecord + 300);
  {
    const auto part = ParameterPart::Recover(Storage());
    EXPECT_TRUE(Mentions(part->remark(), "no change was lost")) << part->remark();
    course_.Run(*part, 5);
  }
  const auto part = ParameterPart::Recover(Storage());
  EXPECT_EQ(part->version(), 5u);
  EXPECT_EQ(part->remark(), "");
}

// What a cut or a torn record left is written over.
TEST_F(PartTest, GoesOnAfterATornRecord) {
  Made(4);
  const std::string whole = ReadFile(Log(0));
  for (const std::size_t torn : {1, 100, 130, 200}) {
    std::string bytes = whole;
    std::fill_n(bytes.begin() + kLogBegin + 3 * kRecord + static_cast<std::ptrdiff_t>(torn), kRecord - torn,
                'x');
    Overwrite(Log(0), bytes);
    const auto part = ParameterPart::Recover(Storage());
    ASSERT_EQ(part->version(), 3u);
    part->Note("short", "");
    course_.Run(*part, 6);
  }
  EXPECT_EQ(Recovered(), 6u);
}

TEST_F(PartTest, DamageInTheMiddleIsNamedAndTheAdviceHelps) {
  Made(5);
  const std::string whole = ReadFile(Log(0));
  const std::string snapshot = ReadFile(Snapshot());
  PartStorage accepting = Storage();
  accepting.accept_loss = true;
  for (std::size_t byte = 0; byte < 4 * kRecord; byte += 7) {
    if (byte % kRecord >= 128 + 19 * 4 + 6) continue;  // zeros
    std::string damaged = whole;
    char& there = damaged[kLogBegin + byte];
    there = static_cast<char>(there ^ 1 << byte % 8);
    Overwrite(Log(0), damaged);
    Overwrite(Snapshot(), snapshot);
    const std::string message = Refusal([&] { ParameterPart::Recover(Storage()); });
    const std::size_t start = kLogBegin + byte / kRecord * kRecord;
    ASSERT_TRUE(Mentions(message, fmt::format("{} is damaged at byte {}", Log(0).string(), start)))
        << message;
    ASSERT_TRUE(Mentions(message, "--accept-loss")) << message;
    ASSERT_EQ(ReadFile(Log(0)), damaged) << "a refusal changes nothing";
    {
      const auto part = ParameterPart::Recover(accepting);
      ASSERT_EQ(part->version(), byte / kRecord);
      ASSERT_TRUE(Mentions(part->remark(), "given up")) << part->remark();
      course_.Run(*part, 7);
    }
    ASSERT_EQ(Recovered(), 7u) << "what was given up does not come back";
  }
}

TEST_F(PartTest, ChangesMissingBetweenTheLogsAreNoticed) {
  const PartStorage storage = Storage(20 * kRecord);
  const std::string old = [&] {
    Made(0, storage);
    return ReadFile(Snapshot());
  }();
  course_.Run(*ParameterPart::Recover(storage), 30);  // some in log 0, the rest in log 1
  Overwrite(Snapshot(), old);
  const std::string first = ReadFile(Log(0));
  fs::resize_file(Log(0), kLogBegin + 10 * kRecord);
  std::string message = Refusal([&] { ParameterPart::Recover(storage); });
  EXPECT_TRUE(Mentions(message, "changes 11 to ")) << message;
  EXPECT_TRUE(Mentions(message, Log(1).string() + " goes on behind them")) << message;
  // A damaged first record hides the whole log.
  std::string damaged = first;
  damaged[kLogBegin + 50] ^= 1;
  Overwrite(Log(0), damaged);
  message = Refusal([&] { ParameterPart::Recover(storage); });
  EXPECT_TRUE(Mentions(message, Log(0).string() + " is damaged at byte 64")) << message;

  Overwrite(Log(0), first.substr(0, kLogBegin + 10 * kRecord));
  PartStorage accepting = storage;
  accepting.accept_loss = true;
  EXPECT_EQ(Recovered(accepting), 10u);
  EXPECT_EQ(Recovered(storage), 10u);
}

TEST_F(PartTest, ADamagedSnapshotIsRefused) {
  Made(3);
  const std::string whole = ReadFile(Snapshot());
  for (std::size_t byte = 0; byte < whole.size(); byte += 11) {
    std::string damaged = whole;
    damaged[byte] ^= 4;
    Overwrite(Snapshot(), damaged);
    ASSERT_TRUE(Mentions(Refusal([&] { ParameterPart::Recover(Storage()); }), Snapshot().string())) << byte;
    Overwrite(Snapshot(), whole.substr(0, byte));
    ASSERT_TRUE(Mentions(Refusal([&] { ParameterPart::Recover(Storage()); }), Snapshot().string())) << byte;
  }
  std::string other = whole;
  other.replace(other.find("version 3"), 9, "version 2");
  Overwrite(Snapshot(), other);
  EXPECT_TRUE(Mentions(Refusal([&] { ParameterPart::Recover(Storage()); }), "'version 2'"));
  Overwrite(Snapshot(), whole);
  EXPECT_EQ(Recovered(), 3u);
}

TEST_F(PartTest, MissingFilesAreRefused) {
  Made(3);
  const fs::path away = root_ / "away";
  fs::rename(Log(0), away);
  EXPECT_TRUE(Mentions(Refusal([&] { ParameterPart::Recover(Storage()); }), Log(0).string() + " is missing"));
  fs::rename(away, Log(0));
  fs::rename(Snapshot(), away);
  EXPECT_TRUE(
      Mentions(Refusal([&] { ParameterPart::Recover(Storage()); }), Snapshot().string() + " is missing"));
  EXPECT_TRUE(Mentions(Refusal([&] { Made(0); }), Snapshot().string() + " is missing"));
  fs::rename(away, Snapshot());
  EXPECT_EQ(Recovered(), 3u);
  fs::remove(Log(0));
  PartStorage accepting = Storage();
  accepting.accept_loss = true;
  EXPECT_EQ(Recovered(accepting), 0u);
  EXPECT_EQ(Recovered(), 0u);
}

// Whole records, but no part of ours has written them.
TEST_F(PartTest, RecordsWithGroupsThatMakeNoSenseAreRefused) {
  const std::vector<std::vector<PartGroup>> wrong = {
      {{0, 5, 1}, {4, 9, 1}}, {{5, 9, 1}, {0, 4, 1}}, {{3, 3, 1}}, {{9, 2, 1}}};
  for (const std::vector<PartGroup>& groups : wrong) {
    fs::remove_all(Storage().folder);
    Made(3);
    const auto id = ReadSnapshot(Snapshot()).GetValue<std::uint64_t>("files/shard");
    PartUpdate update{.worker = 9, .sequence = 1, .learning_rate = 0.1f};
    for (const PartGroup& group : groups) update.groups.Append(group);
    const std::vector<float> gradient(19, 1.0f);
    PartLog(Log(0), id, kLogBegin + 3 * kRecord)
        .Append({.kind = LogRecord::Kind::kUpdate,
                 .number = 4,
                 .version = 4,
                 .update = update,
                 .gradient = gradient,
                 .name = {},
                 .text = {}},
                false);
    EXPECT_TRUE(Mentions(Refusal([&] { ParameterPart::Recover(Storage()); }), "does not fit its snapshot"));
  }
}

TEST_F(PartTest, ParametersThatNoRunCanHaveAreRefused) {
  PartSetup setup = course_.setup();
  setup.begin = UINT64_MAX - 5;
  ParameterPart(setup, Storage(), course_.Start());
  EXPECT_TRUE(Mentions(Refusal([&] { ParameterPart::Recover(Storage()); }), "no run can have"));
}

TEST_F(PartTest, TheLogOfAnotherPartIsRefused) {
  Made(3);
  const std::string log = ReadFile(Log(0));
  fs::remove_all(Storage().folder);
  Made(3);
  Overwrite(Log(0), log);
  EXPECT_TRUE(Mentions(Refusal([&] { ParameterPart::Recover(Storage()); }), "another part"));
}

}  // namespace
}  // namespace trireme
