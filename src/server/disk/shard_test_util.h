// What the tests of shards share.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/rng.h"
#include "trireme/optim/optimizer.h"
#include "trireme/server/disk/shard.h"

namespace trireme {

class ShardFolderTest : public testing::Test {
 protected:
  ShardFolderTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = fmt::format("trireme_{}_{}_{}", test->test_suite_name(), test->name(), getpid());
    for (char& c : name) c = c == '/' ? '_' : c;
    root_ = std::filesystem::path(testing::TempDir()) / name;
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~ShardFolderTest() override { std::filesystem::remove_all(root_); }

  ShardStorage Storage(std::uint64_t log_bytes = 1 << 16) const {
    return {.folder = root_ / "shard", .durable = false, .audit = {}, .log_bytes = log_bytes};
  }
  std::filesystem::path Snapshot() const { return root_ / "shard" / "shard.snapshot"; }
  std::filesystem::path Log(int log) const { return root_ / "shard" / fmt::format("shard.log{}", log); }

  std::filesystem::path root_;
};

// In place: a file that is first emptied is brought to the disk by some file systems, which takes long.
inline void Overwrite(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::app).close();
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::filesystem::resize_file(path, bytes.size());
}

inline std::vector<float> Noise(std::size_t size, std::uint64_t number) {
  RandomStream stream(1, Purpose::kTest, 0, number);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(stream.NextUniform() - 0.5);
  return values;
}

inline bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// The message of the Error that `act` throws; empty when it throws none.
template <class Act>
std::string Refusal(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool Mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

// Stands for a full disk: this process cannot make files longer than `bytes`.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  void (*handler_)(int);
};

// A course of updates, number 1, 2, ..., each a function of its number, and the parameters after any of them
// as an Optimizer makes them.
class Course {
 public:
  static constexpr std::uint64_t kWorkers = 3;

  explicit Course(std::size_t size, OptimizerKind kind = OptimizerKind::kAdam)
      : setup_{.identity = "a course", .optimizer = {}, .begin = 0, .size = size} {
    setup_.optimizer.kind = kind;
    setup_.optimizer.weight_decay = 0.01;
    after_.push_back(Start());
    optimizer_ = std::make_unique<Optimizer>(setup_.optimizer, size);
  }

  const ShardSetup& setup() const { return setup_; }
  std::vector<float> Start() const { return Noise(setup_.size, 0); }
  static ShardUpdate Update(std::uint64_t number) {
    return {.worker = number % kWorkers,
            .sequence = number,
            .steps = 5,
            .learning_rate = 0.01f,
            .special = {.begin = 3, .end = 7, .learning_rate = 0.1f}};
  }
  std::vector<float> Gradient(std::uint64_t number) const { return Noise(setup_.size, number); }
  // Makes the updates from the shard's version to `version`.
  void Run(Shard& shard, std::uint64_t version) const {
    while (shard.version() < version) {
      const std::uint64_t number = shard.version() + 1;
      shard.Apply(Update(number), Gradient(number), NoteAfter(number));
    }
  }
  static std::string NoteAfter(std::uint64_t number) { return fmt::format("note {}", number); }

  const std::vector<float>& After(std::uint64_t version) {
    while (after_.size() <= version) {
      const ShardUpdate update = Update(after_.size());
      std::vector<float> params = after_.back();
      optimizer_->Step(params, Gradient(after_.size()), update.learning_rate, update.special);
      after_.push_back(std::move(params));
    }
    return after_[version];
  }
  // The shard is exactly as after its version()'s updates.
  void Expect(const Shard& shard) {
    const std::uint64_t version = shard.version();
    EXPECT_TRUE(SameBits(shard.params(), After(version))) << "at version " << version;
    EXPECT_EQ(shard.steps(), static_cast<std::int64_t>(5 * version));
    EXPECT_EQ(shard.NoteOf("update"), version == 0 ? "" : NoteAfter(version));
    for (std::uint64_t worker = 0; worker < kWorkers; ++worker) {
      std::uint64_t last = version;
      while (last > 0 && last % kWorkers != worker) --last;
      EXPECT_EQ(shard.LastSequence(worker), last) << "worker " << worker << " at version " << version;
    }
  }

 private:
  ShardSetup setup_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<std::vector<float>> after_;
};

// What the audit of a course must be.
inline std::string AuditOf(std::uint64_t version, std::uint64_t first = 1) {
  std::string lines;
  for (std::uint64_t number = first; number <= version; ++number) {
    lines += fmt::format("{} {} {}\n", number, number % Course::kWorkers, number);
  }
  return lines;
}

// A folder with the shard of a course.
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

  static constexpr std::size_t kRecord = 256, kLogBegin = 64;
  Course course_{19};
};

}  // namespace trireme
