#include "trireme/server/disk/part_audit.h"

#include "trireme/server/disk/part_test_util.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

TEST_F(PartTest, TheAuditIsCutBackToWhatWasRecovered) {
  PartStorage storage = Storage(20 * kRecord);
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

TEST_F(PartTest, AnAuditThatWasChangedIsRefused) {
  PartStorage storage = Storage(20 * kRecord);
  storage.audit = root_ / "audit";
  Made(60, storage);
  Recovered(storage);
  // Lines behind the snapshot are written again from the log.
  const std::string whole = ReadFile(storage.audit);
  int refused = 0;
  for (std::size_t byte = 0; byte < whole.size(); ++byte) {
    std::string damaged = whole;
    damaged[byte] ^= 1;
    Overwrite(storage.audit, damaged);
    const std::string message = Refusal([&] { Recovered(storage); });
    if (message.empty()) {
      ASSERT_EQ(ReadFile(storage.audit), whole) << byte;
    } else {
      ASSERT_TRUE(Mentions(message, storage.audit.string() + " is damaged")) << message;
      ASSERT_EQ(ReadFile(storage.audit), damaged) << "a refusal changes nothing";
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_F(PartTest, AnAuditMayBeginLaterAndIsNotMixedUp) {
  PartStorage storage = Storage();
  storage.audit = root_ / "audit";
  Made(5);
  Overwrite(storage.audit, "something else\n");
  EXPECT_TRUE(Mentions(Refusal([&] { ParameterPart::Recover(storage); }), storage.audit.string()));
  EXPECT_EQ(ReadFile(storage.audit), "something else\n");
  fs::remove(storage.audit);
  for (std::uint64_t version = 6; version <= 9; ++version) {
    course_.Run(*ParameterPart::Recover(storage), version);
    EXPECT_EQ(ReadFile(storage.audit), AuditOf(version, 6));
  }
  // Gone: what the log still has is written again.
  fs::remove(storage.audit);
  course_.Run(*ParameterPart::Recover(storage), 11);
  EXPECT_EQ(ReadFile(storage.audit), AuditOf(11, 6));
  Overwrite(storage.audit, "12 of another part\n");
  EXPECT_TRUE(Mentions(Refusal([&] { ParameterPart::Recover(storage); }), "not the audit of this part"));
  EXPECT_EQ(ReadFile(storage.audit), "12 of another part\n");
  Overwrite(storage.audit, AuditOf(11, 6));
  EXPECT_EQ(Recovered(storage), 11u);

  // Gone after a snapshot: a new one begins.
  PartStorage short_log = storage;
  short_log.log_bytes = 0;
  course_.Run(*ParameterPart::Recover(short_log), 100);
  EXPECT_EQ(ReadFile(storage.audit), AuditOf(100, 6));
  Overwrite(storage.audit, "100 of another part\n");
  EXPECT_TRUE(Mentions(Refusal([&] { ParameterPart::Recover(storage); }), "not the audit of this part"));
  fs::remove(storage.audit);
  for (std::uint64_t version = 101; version <= 103; ++version) {
    course_.Run(*ParameterPart::Recover(storage), version);
    EXPECT_EQ(ReadFile(storage.audit), AuditOf(version, 101));
  }

  const PartStorage memory_only = {.folder = {}, .durable = false, .audit = root_ / "other", .log_bytes = 0};
  Made(7, memory_only);
  EXPECT_EQ(ReadFile(memory_only.audit), AuditOf(7));
  EXPECT_TRUE(Mentions(Refusal([&] { Made(0, memory_only); }), "another audit"));
}

}  // namespace
}  // namespace trireme
