// What the tests of parts share.
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
#include "trireme/server/disk/parameter_part.h"

namespace trireme {

class PartFolderTest : public testing::Test {
 protected:
  PartFolderTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = fmt::format("trireme_{}_{}_{}", test->test_suite_name(), test->name(), getpid());
    for (char& c : name) c = c == '/' ? '_' : c;
    root_ = std::filesystem::path(testing::TempDir()) / name;
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~PartFolderTest() override { std::filesystem::remove_all(root_); }

  PartStorage Storage(std::uint64_t log_bytes = 1 << 16) const {
    return {.folder = root_ / "part", .durable = false, .audit = {}, .log_bytes = log_bytes};
  }
  std::filesystem::path Snapshot() const { return root_ / "part" / "shard.snapshot"; }
  std::filesystem::path Log(int log) const { return root_ / "part" / fmt::format("shard.log{}", log); }

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

  const PartSetup& setup() const { return setup_; }
  std::vector<float> Start() const { return Noise(setup_.size, 0); }
  static PartUpdate Update(std::uint64_t number) {
    PartUpdate update{.worker = number % kWorkers, .sequence = number, .steps = 5, .learning_rate = 0.01f};
    update.groups.Append({.begin = 3, .end = 7, .learning_rate = 0.1f});
    return update;
  }
  std::vector<float> Gradient(std::uint64_t number) const { return Noise(setup_.size, number); }
  // Makes the updates from the part's version to `version`.
  void Run(ParameterPart& part, std::uint64_t version) const {
    while (part.version() < version) {
      const std::uint64_t number = part.version() + 1;
      part.Apply(Update(number), Gradient(number), NoteAfter(number));
    }
  }
  static std::string NoteAfter(std::uint64_t number) { return fmt::format("note {}", number); }

  const std::vector<float>& After(std::uint64_t version) {
    while (after_.size() <= version) {
      std::vector<float> params = after_.back();
      optimizer_->Step(params, Gradient(after_.size()), 0.01f, {{3, 7, 0.1f}});
      after_.push_back(std::move(params));
    }
    return after_[version];
  }
  // The part is exactly as after its version()'s updates.
  void Expect(const ParameterPart& part) {
    const std::uint64_t version = part.version();
    EXPECT_TRUE(SameBits(part.params(), After(version))) << "at version " << version;
    EXPECT_EQ(part.steps(), static_cast<std::int64_t>(5 * version));
    EXPECT_EQ(part.NoteOf("update"), version == 0 ? "" : NoteAfter(version));
    for (std::uint64_t worker = 0; worker < kWorkers; ++worker) {
      std::uint64_t last = version;
      while (last > 0 && last % kWorkers != worker) --last;
      EXPECT_EQ(part.LastSequence(worker), last) << "worker " << worker << " at version " << version;
    }
  }

 private:
  PartSetup setup_;
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

// A folder with the part of a course.
class PartTest : public PartFolderTest {
 protected:
  // A course of `updates` in a folder of its own. Records take 256 bytes.
  std::unique_ptr<ParameterPart> Made(std::uint64_t updates, const PartStorage& storage) {
    auto part = std::make_unique<ParameterPart>(course_.setup(), storage, course_.Start());
    course_.Run(*part, updates);
    return part;
  }
  std::unique_ptr<ParameterPart> Made(std::uint64_t updates) { return Made(updates, Storage()); }
  // The version that is recovered, with everything as it was at that version.
  std::uint64_t Recovered(const PartStorage& storage) {
    const std::unique_ptr<ParameterPart> part = ParameterPart::Recover(storage);
    if (part == nullptr) {
      ADD_FAILURE() << "there is no part";
      return 0;
    }
    course_.Expect(*part);
    return part->version();
  }
  std::uint64_t Recovered() { return Recovered(Storage()); }

  static constexpr std::size_t kRecord = 256, kLogBegin = 64;
  Course course_{19};
};

}  // namespace trireme
