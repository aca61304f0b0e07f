#include "trireme/server/disk/part_log.h"

#include <sys/mman.h>

#include "trireme/server/disk/part_test_util.h"

namespace trireme {
namespace {

class PartLogTest : public PartFolderTest {
 protected:
  static constexpr std::uint64_t kPart = 77;

  PartLogTest() { PartLog::Create(path_, kPart); }

  static constexpr std::size_t kGroups = 3;
  static PartGroup Group(std::size_t g) {
    return {
        .begin = 10 * g, .end = 10 * g + 5, .learning_rate = 0.125f * static_cast<float>(g), .scale = 0.75f};
  }
  // Change `number`, with as many floats as it says.
  static void Append(PartLog& log, std::uint64_t number, std::size_t floats = 5) {
    const std::vector<float> gradient = Noise(floats, number);
    const std::string text = fmt::format("text {}", number);
    PartUpdate update{.worker = 3, .sequence = number, .steps = -4, .scale = 0.5f, .learning_rate = 0.25f};
    for (std::size_t g = 0; g < kGroups; ++g) update.groups.Append(Group(g));
    log.Append({.kind = LogRecord::Kind::kUpdate,
                .number = number,
                .version = 2 * number,
                .update = update,
                .gradient = gradient,
                .name = "name",
                .text = text},
               false);
  }
  std::vector<std::uint64_t> Numbers(std::uint64_t part = kPart) const {
    PartLogReader reader(path_, part);
    std::vector<std::uint64_t> numbers;
    while (const auto record = reader.Next()) numbers.push_back(record->number);
    return numbers;
  }
  bool HasLater(std::uint64_t number) const {
    PartLogReader reader(path_, kPart);
    while (reader.Next()) {
    }
    return reader.HasLater(number);
  }

  std::string Flaw() const { return PartLogReader(path_, kPart).Flaw(); }
  bool EndsHere() const {
    PartLogReader reader(path_, kPart);
    while (reader.Next()) {
    }
    return reader.EndsHere();
  }

  static constexpr std::uint64_t kBegin = PartLog::kBegin;
  using Numbered = std::vector<std::uint64_t>;
  const std::filesystem::path path_ = root_ / "log";
};

// The text is never looked at: memory that takes no room stands for it.
TEST_F(PartLogTest, ATextThatIsTooLongIsRefusedAndTakesNoRoom) {
  const std::size_t bytes = (std::size_t{1} << 32) + 1;
  void* const zeros = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(zeros, MAP_FAILED);
  const auto length = std::filesystem::file_size(path_);
  PartLog log(path_, kPart, kBegin);
  Append(log, 1);
  try {
    log.Append({.kind = LogRecord::Kind::kNote,
                .number = 2,
                .gradient = {},
                .name = "note",
                .text = {static_cast<const char*>(zeros), bytes}},
               false);
    ADD_FAILURE() << "took it";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("a note of 4294967297 bytes"), std::string::npos)
        << error.what();
  }
  ::munmap(zeros, bytes);
  EXPECT_EQ(std::filesystem::file_size(path_), length);
  Append(log, 2);
  EXPECT_EQ(Numbers(), (Numbered{1, 2}));
}

TEST_F(PartLogTest, RoundTrip) {
  PartLog log(path_, kPart, kBegin);
  Append(log, 1);
  EXPECT_EQ(log.end() % 64, 0u);
  PartLogReader reader(path_, kPart);
  EXPECT_EQ(reader.FirstNumber(), 1u);
  const auto record = reader.Next();
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->version, 2u);
  EXPECT_EQ(record->update.worker, 3u);
  EXPECT_EQ(record->update.sequence, 1u);
  EXPECT_EQ(record->update.steps, -4);
  EXPECT_EQ(record->update.scale, 0.5f);
  EXPECT_EQ(record->update.learning_rate, 0.25f);
  ASSERT_EQ(record->update.groups.size(), kGroups);
  for (std::size_t g = 0; g < kGroups; ++g) EXPECT_EQ(record->update.groups[g], Group(g));
  EXPECT_TRUE(SameBits(record->gradient, Noise(5, 1)));
  EXPECT_EQ(record->name, "name");
  EXPECT_EQ(record->text, "text 1");
  EXPECT_EQ(reader.offset(), log.end());
  EXPECT_FALSE(reader.Next().has_value());
}

TEST_F(PartLogTest, RecordsOfAnEarlierRoundAreNotReadAgain) {
  PartLog log(path_, kPart, kBegin);
  for (std::uint64_t number = 1; number <= 4; ++number) Append(log, number);
  log.Restart(1 << 16);
  EXPECT_EQ(Numbers(), (Numbered{1, 2, 3, 4})) << "a restart writes nothing";
  Append(log, 5);
  EXPECT_EQ(Numbers(), (Numbered{5})) << "the next is the old 2, and of the same size";
  EXPECT_FALSE(HasLater(6));
  Append(log, 6, 20);  // over the old 2 and a part of 3
  EXPECT_EQ(Numbers(), (Numbered{5, 6}));
  EXPECT_FALSE(HasLater(7));
}

TEST_F(PartLogTest, ALogCutAtAnyByteEndsWithItsLastWholeRecord) {
  PartLog log(path_, kPart, kBegin);
  Append(log, 1);
  const std::uint64_t first = log.end();
  Append(log, 2);
  const std::string whole = ReadFile(path_).substr(0, log.end());
  // Header, groups, floats, name and text; zeros follow.
  const std::uint64_t needed = 128 + 24 * kGroups + 20 + 4 + 6;
  for (std::uint64_t size = first; size <= whole.size(); ++size) {
    Overwrite(path_, whole.substr(0, size));
    EXPECT_EQ(Numbers().size(), size < first + needed ? 1u : 2u) << size;
    EXPECT_FALSE(HasLater(3));
    EXPECT_TRUE(Mentions(Flaw(), fmt::format("was cut to {} bytes, where it had 16384", size))) << Flaw();
    EXPECT_EQ(EndsHere(), false) << size;
  }
}

TEST_F(PartLogTest, ACutBehindTheLastRecordTakesNothing) {
  PartLog log(path_, kPart, kBegin);
  Append(log, 1);
  EXPECT_EQ(Flaw(), "");
  for (const std::uint64_t room : {0, 1, 127, 128, 1000}) {
    std::filesystem::resize_file(path_, log.end() + room);
    EXPECT_NE(Flaw(), "");
    EXPECT_EQ(EndsHere(), room >= 128) << room;
  }
  // Records of an earlier round do not look like lost ones, and a torn one was never acknowledged.
  for (std::uint64_t number = 2; number <= 4; ++number) Append(log, number);
  log.Restart(1 << 16);
  Append(log, 5);
  EXPECT_TRUE(EndsHere());
  std::string torn = ReadFile(path_);
  Append(log, 6);
  const std::string whole = ReadFile(path_);
  torn.replace(0, log.end() - 100, whole, 0, log.end() - 100);
  Overwrite(path_, torn);
  EXPECT_EQ(Numbers(), (Numbered{5}));
  EXPECT_TRUE(EndsHere());
}

// The file says at any moment what it has at least.
TEST_F(PartLogTest, ItGrowsWithNeedAndSaysHowLongItIs) {
  EXPECT_EQ(std::filesystem::file_size(path_), 16u << 10);
  PartLog log(path_, kPart, kBegin);
  std::uint64_t before = 16 << 10;
  for (std::uint64_t number = 1; number <= 60; ++number) {
    Append(log, number, 100'000);
    const std::uint64_t size = std::filesystem::file_size(path_);
    EXPECT_GE(size, log.end());
    EXPECT_LE(size, std::max(2 * log.end(), before));
    EXPECT_LE(size, log.end() + (8 << 20));
    EXPECT_EQ(Flaw(), "");
    before = size;
  }
  EXPECT_EQ(Numbers().size(), 60u);
}

TEST_F(PartLogTest, DamageAtTheBeginningIsNoticed) {
  PartLog log(path_, kPart, kBegin);
  Append(log, 1);
  const std::string whole = ReadFile(path_);
  for (std::size_t byte = 0; byte < kBegin; ++byte) {
    std::string damaged = whole;
    damaged[byte] ^= 1;
    Overwrite(path_, damaged);
    EXPECT_TRUE(Mentions(Flaw(), "is damaged at its beginning")) << byte;
    EXPECT_EQ(Numbers(), (Numbered{1}));
  }
  for (std::size_t size = 0; size < kBegin; ++size) {
    Overwrite(path_, whole.substr(0, size));
    EXPECT_TRUE(Mentions(Flaw(), fmt::format("was cut to {} bytes", size)));
    EXPECT_FALSE(EndsHere());
  }
}

TEST_F(PartLogTest, AFlippedBitEndsTheLogAndLaterRecordsAreNoticed) {
  PartLog log(path_, kPart, kBegin);
  for (std::uint64_t number = 1; number <= 3; ++number) Append(log, number);
  const std::string whole = ReadFile(path_).substr(0, log.end());
  const std::size_t size = (whole.size() - kBegin) / 3;
  const std::size_t needed = 128 + 20 + 4 + 6;
  for (std::size_t byte = 0; byte < needed; ++byte) {
    std::string damaged = whole;
    char& there = damaged[kBegin + size + byte];
    there = static_cast<char>(there ^ 1 << byte % 8);
    Overwrite(path_, damaged);
    EXPECT_EQ(Numbers(), (Numbered{1})) << byte;
    EXPECT_TRUE(HasLater(2)) << byte;
    EXPECT_FALSE(HasLater(4)) << byte;
  }
}

TEST_F(PartLogTest, ARecordThatFailedIsOverwritten) {
  PartLog log(path_, kPart, kBegin);
  Append(log, 1);
  const std::uint64_t end = log.end();
  {
    const FileSizeLimit full((1 << 16) + 1000);
    EXPECT_TRUE(Mentions(Refusal([&] { Append(log, 2, 1 << 16); }), path_.string()));
  }
  EXPECT_EQ(log.end(), end);
  EXPECT_EQ(Numbers(), (Numbered{1}));
  Append(log, 2);
  Append(log, 3);
  EXPECT_EQ(Numbers(), (Numbered{1, 2, 3}));
}

TEST_F(PartLogTest, RoomIsGivenBack) {
  PartLog log(path_, kPart, kBegin);
  Append(log, 1, 1 << 18);
  EXPECT_GT(std::filesystem::file_size(path_), 1u << 20);
  log.Restart(1 << 16);
  EXPECT_EQ(std::filesystem::file_size(path_), 1u << 16);
}

TEST_F(PartLogTest, RecordsOfAnotherPartAreRefused) {
  PartLog log(path_, kPart, kBegin);
  Append(log, 1);
  EXPECT_TRUE(Mentions(Refusal([&] { Numbers(kPart + 1); }), "another part"));
}

TEST_F(PartLogTest, EmptyAndMissingFiles) {
  EXPECT_TRUE(Numbers().empty());
  EXPECT_TRUE(EndsHere());
  Overwrite(path_, "");
  EXPECT_TRUE(Numbers().empty());
  EXPECT_FALSE(HasLater(1));
  std::filesystem::remove(path_);
  EXPECT_TRUE(Numbers().empty());
  EXPECT_FALSE(EndsHere());
}

}  // namespace
}  // namespace trireme
