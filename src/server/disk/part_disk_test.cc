// Disks that are full or fail.
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "trireme/server/disk/part_files.h"
#include "trireme/server/disk/part_snapshot.h"
#include "trireme/server/disk/part_test_util.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// The disk is full for a while: with every length of log, whatever is due.
TEST_F(PartTest, AFailedWriteChangesNothingAndCanBeRepeated) {
  PartStorage storage = Storage(20 * kRecord);
  storage.audit = root_ / "audit";
  auto part = Made(10, storage);
  int failures = 0;
  for (std::uint64_t version = 11; version < 200; ++version) {
    if (version % 10 == 0) {
      const FileSizeLimit full(700);  // less than a snapshot, and than most of a log
      const std::string message = Refusal([&] { course_.Run(*part, version); });
      if (!message.empty()) {
        ++failures;
        EXPECT_TRUE(Mentions(message, Storage().folder.string()) || Mentions(message, storage.audit.string()))
            << message;
        ASSERT_EQ(part->version(), version - 1);
        course_.Expect(*part);
        EXPECT_EQ(ReadFile(storage.audit), AuditOf(version - 1));
      }
    }
    course_.Run(*part, version);
  }
  EXPECT_GT(failures, 5);
  part.reset();
  EXPECT_EQ(Recovered(storage), 199u);
  EXPECT_EQ(ReadFile(storage.audit), AuditOf(199));
}

class PartOnAFullDisk : public PartTest {
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

TEST_F(PartOnAFullDisk, ARealOne) {
  PartStorage storage = Storage(20 * kRecord);
  storage.folder = disk_ / "part";
  const fs::path filler = disk_ / "filler";
  Overwrite(filler, std::string(1 << 20, 'x'));
  EXPECT_TRUE(Mentions(Refusal([&] { Made(0, storage); }), "Make room")) << "no room for the logs";
  EXPECT_EQ(ParameterPart::Recover(storage), nullptr);

  fs::remove(filler);
  auto part = Made(10, storage);
  Overwrite(filler, std::string(1 << 20, 'x'));
  // Logs that were made with room go on for a while; then something has to give.
  std::string message;
  while (message.empty() && part->version() < 1000) {
    message = Refusal([&] { course_.Run(*part, part->version() + 1); });
  }
  EXPECT_TRUE(Mentions(message, "No space left on device")) << message;
  EXPECT_TRUE(Mentions(message, disk_.string())) << message;
  EXPECT_GE(part->version(), 20u);
  course_.Expect(*part);
  const std::uint64_t version = part->version();
  part.reset();
  EXPECT_EQ(Recovered(storage), version) << "while the disk is full";

  part = ParameterPart::Recover(storage);
  EXPECT_NE(Refusal([&] { course_.Run(*part, version + 100); }), "");
  fs::remove(filler);
  course_.Run(*part, version + 100);
  part.reset();
  EXPECT_EQ(Recovered(storage), version + 100);
}

// A log grows in steps: where the next step finds no room the change is refused, and nothing is lost.
TEST_F(PartOnAFullDisk, ALogThatCannotGrow) {
  PartStorage storage = Storage(1 << 20);
  storage.folder = disk_ / "part";
  auto part = Made(0, storage);
  std::string message;
  while (message.empty() && part->version() < 2000) {
    message = Refusal([&] { course_.Run(*part, part->version() + 1); });
  }
  EXPECT_TRUE(Mentions(message, "No space left on device")) << message;
  const std::uint64_t version = part->version();
  EXPECT_GT(version, (16u << 10) / kRecord) << "all room is used";
  EXPECT_NE(Refusal([&] { course_.Run(*part, version + 1); }), "");
  part.reset();
  EXPECT_EQ(Recovered(storage), version);
}

TEST_F(PartTest, ASmallPartTakesLittleRoom) {
  const auto part = Made(10);
  std::uintmax_t bytes = 0;
  for (const auto& file : fs::directory_iterator(Storage().folder)) bytes += file.file_size();
  EXPECT_LT(bytes, 200'000u);
}

TEST_F(PartTest, ASnapshotThatThereIsNoMemoryForIsTriedAgain) {
  const PartStorage storage = Storage();
  const auto files = PartFiles::Create(storage, StateWriter());
  LogRecord note{
      .kind = LogRecord::Kind::kNote, .update = {}, .gradient = {}, .name = "name", .text = "text"};
  files->Append(note);
  files->BeginSnapshot([]() -> StateWriter { throw std::bad_alloc(); });
  EXPECT_TRUE(Mentions(Refusal([&] { files->FinishSnapshot(); }), "no memory for a snapshot"));
  files->Append(note);
  files->BeginSnapshot([] { return StateWriter(); });
  files->FinishSnapshot();
  EXPECT_EQ(ReadSnapshot(Snapshot()).GetValue<std::uint64_t>("files/number"), 2u);
}

TEST_F(PartTest, DurableChangesAreRecoveredToo) {
  PartStorage storage = Storage(20 * kRecord);
  storage.durable = true;
  Made(60, storage);
  EXPECT_EQ(Recovered(storage), 60u);
}

// From now on what this process writes to `file`, which is open, goes to a device.
bool PutDeviceInPlaceOf(const fs::path& file) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (fs::read_symlink(entry.path(), error) != file) continue;
    const int device = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    const bool done = ::dup2(device, std::stoi(entry.path().filename())) >= 0;
    ::close(device);
    return done;
  }
  return false;
}

// A device takes every byte but cannot be flushed. What the disk then has of the log is not known, so that a
// snapshot comes before anything else.
TEST_F(PartTest, AFlushThatFailsChangesNothingAndTheLogIsNotTrustedAnyMore) {
  PartStorage storage = Storage();
  storage.durable = true;
  storage.audit = root_ / "audit";
  Made(0, storage);
  {
    const auto part = ParameterPart::Recover(storage);
    ASSERT_TRUE(PutDeviceInPlaceOf(Log(0)));
    const auto written = fs::last_write_time(Snapshot());
    EXPECT_TRUE(Mentions(Refusal([&] { course_.Run(*part, 1); }), Log(0).string()));
    EXPECT_EQ(fs::last_write_time(Snapshot()), written);
    course_.Expect(*part);
    EXPECT_EQ(part->version(), 0u);
    EXPECT_EQ(ReadFile(storage.audit), "");
    EXPECT_TRUE(Mentions(Refusal([&] { course_.Run(*part, 1); }), Log(0).string()));
    EXPECT_NE(fs::last_write_time(Snapshot()), written);
  }
  course_.Run(*ParameterPart::Recover(storage), 3);
  EXPECT_EQ(Recovered(storage), 3u);
  EXPECT_EQ(ReadFile(storage.audit), AuditOf(3));
}

}  // namespace
}  // namespace trireme
