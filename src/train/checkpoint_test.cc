#include "trireme/train/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "trireme/base/file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class Checkpoint : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              fmt::format("trireme_checkpoint_{}_{}",
                          testing::UnitTest::GetInstance()->current_test_info()->name(), getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path PathOf(std::int64_t steps) const { return folder_ / fmt::format("checkpoint-{}.trireme", steps); }
  void Write(std::int64_t steps) const {
    StateWriter state;
    state.PutValue<std::int64_t>("steps", steps);
    state.PutText("text", "some\nlines\n");
    const std::vector<float> params = {1.5f, -2.5f, 1e-30f};
    state.Put<float>("params", params);
    WriteCheckpoint(folder_, steps, std::move(state));
  }
  static void Overwrite(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const fs::path& path : ListCheckpoints(folder_)) names.push_back(path.filename().string());
    return names;
  }

  fs::path folder_;
};

// The message of the Error that `read` throws; empty when it throws none.
template <class Read>
std::string Refusal(Read&& read) {
  try {
    read();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool Mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

TEST_F(Checkpoint, RoundTrip) {
  Write(1234);
  const StateReader in = ReadCheckpoint(PathOf(1234));
  EXPECT_EQ(in.GetValue<std::int64_t>("steps"), 1234);
  EXPECT_EQ(in.GetText("text"), "some\nlines\n");
  std::vector<float> params(3);
  in.Get<float>("params", params);
  EXPECT_EQ(params, (std::vector<float>{1.5f, -2.5f, 1e-30f}));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "something else was left behind";
}

TEST_F(Checkpoint, OnlyWhatIsWantedIsHeldAndAllOfItIsChecked) {
  Write(7);
  const auto read = [&] {
    return ReadNewestCheckpoint(folder_, [](std::string_view section) { return section == "steps"; });
  };
  const std::optional<StateReader> some = read();
  EXPECT_EQ(some->GetValue<std::int64_t>("steps"), 7);
  EXPECT_FALSE(some->Has("params"));
  EXPECT_FALSE(some->Has("text"));

  std::string bytes = ReadFile(PathOf(7));
  const std::size_t text = bytes.find("some\nlines");
  ASSERT_NE(text, std::string::npos);
  bytes[text] ^= 1;
  Overwrite(PathOf(7), bytes);
  EXPECT_TRUE(Mentions(Refusal(read), "its checksum does not match"));
}

TEST_F(Checkpoint, NoneYet) {
  EXPECT_FALSE(ReadNewestCheckpoint(folder_).has_value());
  EXPECT_TRUE(Mentions(Refusal([&] { ReadNewestCheckpoint(folder_ / "missing"); }), "missing"));
}

TEST_F(Checkpoint, KeepsTheTwoNewestInNumericOrder) {
  for (const int steps : {8, 9, 10, 1000}) Write(steps);
  EXPECT_EQ(Names(), (std::vector<std::string>{"checkpoint-1000.trireme", "checkpoint-10.trireme"}));
  EXPECT_EQ(ReadNewestCheckpoint(folder_)->GetValue<std::int64_t>("steps"), 1000);
  Write(999);  // older than the newest: kept, and in its place
  EXPECT_EQ(Names(), (std::vector<std::string>{"checkpoint-1000.trireme", "checkpoint-999.trireme"}));
}

TEST_F(Checkpoint, WritingTheSameStepsAgainReplaces) {
  Write(5);
  StateWriter state;
  state.PutValue<std::int64_t>("steps", 77);
  WriteCheckpoint(folder_, 5, std::move(state));
  EXPECT_EQ(Names().size(), 1u);
  EXPECT_EQ(ReadCheckpoint(PathOf(5)).GetValue<std::int64_t>("steps"), 77);
}

TEST_F(Checkpoint, OtherFilesAreIgnoredAndLeftAlone) {
  const char* others[] = {
      "checkpoint-.trireme",    "checkpoint-12x.trireme",  "checkpoint-1e9.trireme",
      "checkpoint-12",          "mycheckpoint-12.trireme", "notes.txt",
      "checkpoint-1 2.trireme", "checkpoint-0x9.trireme",  "checkpoint-99999999999999999999.trireme"};
  for (const char* name : others) Overwrite(folder_ / name, "x");
  EXPECT_FALSE(ReadNewestCheckpoint(folder_).has_value());
  for (const int steps : {1, 2, 3}) Write(steps);
  EXPECT_EQ(Names(), (std::vector<std::string>{"checkpoint-3.trireme", "checkpoint-2.trireme"}));
  for (const char* name : others) EXPECT_TRUE(fs::exists(folder_ / name)) << name;
}

TEST_F(Checkpoint, TemporariesOfAKilledProcessAreNotReadAndGoWithTheNextWrite) {
  Write(1);
  Overwrite(folder_ / "checkpoint-2.trireme.tmp", "half");
  Overwrite(folder_ / "mine.tmp", "x");
  EXPECT_EQ(Names(), (std::vector<std::string>{"checkpoint-1.trireme"}));
  EXPECT_EQ(ReadNewestCheckpoint(folder_)->GetValue<std::int64_t>("steps"), 1);
  Write(3);
  EXPECT_FALSE(fs::exists(folder_ / "checkpoint-2.trireme.tmp"));
  EXPECT_TRUE(fs::exists(folder_ / "mine.tmp"));
}

TEST_F(Checkpoint, AFileCutShortAnywhereIsRefused) {
  Write(7);
  const std::string whole = ReadFile(PathOf(7));
  for (std::size_t length = 0; length < whole.size(); length += length < 40 ? 1 : 7) {
    Overwrite(PathOf(7), whole.substr(0, length));
    const std::string message = Refusal([&] { ReadCheckpoint(PathOf(7)); });
    ASSERT_TRUE(Mentions(message, PathOf(7).string())) << length << " bytes: " << message;
  }
}

TEST_F(Checkpoint, AFileWithMoreBehindItIsRefused) {
  Write(7);
  Overwrite(PathOf(7), ReadFile(PathOf(7)) + "x");
  EXPECT_TRUE(Mentions(Refusal([&] { ReadCheckpoint(PathOf(7)); }), PathOf(7).string()));
}

TEST_F(Checkpoint, AFlippedBitInAnyByteIsNoticed) {
  Write(7);
  const std::string whole = ReadFile(PathOf(7));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    Overwrite(PathOf(7), damaged);
    const std::string message = Refusal([&] { ReadCheckpoint(PathOf(7)); });
    ASSERT_TRUE(Mentions(message, PathOf(7).string())) << "byte " << at << ": " << message;
  }
}

TEST_F(Checkpoint, SaysWhichKindOfDamage) {
  Write(7);
  const std::string whole = ReadFile(PathOf(7));
  const auto refusal = [&](const std::string& content) {
    Overwrite(PathOf(7), content);
    return Refusal([&] { ReadCheckpoint(PathOf(7)); });
  };
  EXPECT_TRUE(Mentions(refusal(""), "not a Trireme checkpoint"));
  EXPECT_TRUE(Mentions(refusal("PK\x03\x04 something else"), "not a Trireme checkpoint"));
  EXPECT_TRUE(Mentions(refusal(whole.substr(0, whole.size() - 1)), "truncated"));
  std::string damaged = whole;
  damaged.back() ^= 1;
  EXPECT_TRUE(Mentions(refusal(damaged), "checksum"));

  std::string newer = whole;
  const std::size_t at = newer.find("version 1\n");
  ASSERT_NE(at, std::string::npos);
  newer.replace(at, 10, "version 2\n");
  const std::string message = refusal(newer);
  EXPECT_TRUE(Mentions(message, "version 2")) << message;
  EXPECT_TRUE(Mentions(message, "reads version 1")) << message;
  EXPECT_EQ(refusal(whole), "");
}

TEST_F(Checkpoint, ADamagedNewestNamesThePreviousGoodOne) {
  Write(90);
  Write(100);
  Overwrite(PathOf(100), ReadFile(PathOf(100)).substr(0, 60));
  std::string message = Refusal([&] { ReadNewestCheckpoint(folder_); });
  EXPECT_TRUE(Mentions(message, PathOf(100).string())) << message;
  EXPECT_TRUE(Mentions(message, "previous good one is " + PathOf(90).string())) << message;

  // Two damaged ones: the good one is the third.
  Overwrite(PathOf(95), "");
  message = Refusal([&] { ReadNewestCheckpoint(folder_); });
  EXPECT_TRUE(Mentions(message, "previous good one is " + PathOf(90).string())) << message;

  Overwrite(PathOf(90), "");
  message = Refusal([&] { ReadNewestCheckpoint(folder_); });
  EXPECT_TRUE(Mentions(message, PathOf(100).string())) << message;
  EXPECT_TRUE(Mentions(message, "no earlier good one")) << message;

  // What the message says helps.
  for (const int steps : {90, 95, 100}) fs::remove(PathOf(steps));
  EXPECT_FALSE(ReadNewestCheckpoint(folder_).has_value());
  Write(90);
  EXPECT_EQ(ReadNewestCheckpoint(folder_)->GetValue<std::int64_t>("steps"), 90);
}

TEST_F(Checkpoint, AnOlderDamagedOneDoesNotMatter) {
  Write(1);
  Write(2);
  Overwrite(PathOf(1), "");
  EXPECT_EQ(ReadNewestCheckpoint(folder_)->GetValue<std::int64_t>("steps"), 2);
}

// A folder stands where the temporary would go: the write fails and what was there stays.
TEST_F(Checkpoint, AFailedWriteLeavesTheEarlierOnes) {
  Write(1);
  Write(2);
  fs::create_directories(folder_ / "checkpoint-3.trireme.tmp" / "x");
  EXPECT_TRUE(Mentions(Refusal([&] { Write(3); }), "checkpoint-3.trireme"));
  EXPECT_EQ(Names(), (std::vector<std::string>{"checkpoint-2.trireme", "checkpoint-1.trireme"}));
  EXPECT_EQ(ReadNewestCheckpoint(folder_)->GetValue<std::int64_t>("steps"), 2);
}

}  // namespace
}  // namespace trireme
