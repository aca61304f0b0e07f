#include "trireme/metrics/tensorboard.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <stdexcept>
#include <vector>

#include "trireme/base/file.h"
#include "trireme/metrics/crc32c.h"
#include "trireme/metrics/test_util.h"

namespace trireme {
namespace {

// Known answers: the check value of the CRC catalogues, and the patterns of RFC 3720, appendix B.4.
TEST(Crc32c, KnownAnswers) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c(std::string(ascending.rbegin(), ascending.rend())), 0x113fdb5cu);
}

// A reader of event files that shares nothing with the writer but Crc32c.
struct ParsedEvent {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version;
  std::map<std::string, float> scalars;
  std::uint64_t session_status = 0;
};

class WireReader {
 public:
  explicit WireReader(std::string_view data) : data_(data) {}
  bool done() const { return data_.empty(); }
  std::uint64_t Varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(Take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
  template <class T>
  T Fixed() {
    T value;
    std::memcpy(&value, Take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view Take(std::size_t count) {
    if (count > data_.size()) throw std::runtime_error("short data");
    const std::string_view taken = data_.substr(0, count);
    data_.remove_prefix(count);
    return taken;
  }
  std::string_view Bytes() { return Take(Varint()); }

 private:
  std::string_view data_;
};

void ParseSummary(std::string_view data, ParsedEvent& event) {
  for (WireReader summary(data); !summary.done();) {
    ASSERT_EQ(summary.Varint(), 0x0au);  // field 1, bytes
    WireReader value(summary.Bytes());
    ASSERT_EQ(value.Varint(), 0x0au);
    const std::string tag(value.Bytes());
    ASSERT_EQ(value.Varint(), 0x15u);  // field 2, 32 bits
    event.scalars[tag] = value.Fixed<float>();
    EXPECT_TRUE(value.done());
  }
}

ParsedEvent ParseEvent(std::string_view data) {
  ParsedEvent event;
  for (WireReader reader(data); !reader.done();) {
    switch (reader.Varint()) {
      case 0x09:
        event.wall_time = reader.Fixed<double>();
        break;
      case 0x10:
        event.step = static_cast<std::int64_t>(reader.Varint());
        break;
      case 0x1a:
        event.version = std::string(reader.Bytes());
        break;
      case 0x2a:
        ParseSummary(reader.Bytes(), event);
        break;
      case 0x3a: {
        WireReader log(reader.Bytes());
        EXPECT_EQ(log.Varint(), 0x08u);
        event.session_status = log.Varint();
        EXPECT_TRUE(log.done());
        break;
      }
      default:
        ADD_FAILURE() << "unexpected field";
        return event;
    }
  }
  return event;
}

std::uint32_t Masked(std::string_view bytes) {
  const std::uint32_t crc = Crc32c(bytes);
  return static_cast<std::uint32_t>(((crc >> 15) | (static_cast<std::uint64_t>(crc) << 17)) + 2726488792u);
}

std::vector<ParsedEvent> ReadEvents(const std::filesystem::path& path) {
  const std::string content = ReadFile(path);
  std::vector<ParsedEvent> events;
  for (WireReader file(content); !file.done();) {
    const std::string_view header = file.Take(8);
    EXPECT_EQ(file.Fixed<std::uint32_t>(), Masked(header));
    const std::string_view data = file.Take(WireReader(header).Fixed<std::uint64_t>());
    EXPECT_EQ(file.Fixed<std::uint32_t>(), Masked(data));
    events.push_back(ParseEvent(data));
  }
  return events;
}

MetricRow Row(std::int64_t step, double loss) {
  MetricRow row(step, 0.5);
  row.Set("loss", loss);
  return row;
}

TEST(TensorBoard, StartsWithTheVersionAndHoldsTheScalars) {
  TestFolder folder;
  TensorBoardWriter writer(folder / "new/tb");
  MetricRow row(300, 1);
  row.Set("loss/policy", -0.5);
  row.Set("return", 475);
  writer.Append(row);
  writer.Append(Row(std::int64_t{1} << 40, 2));
  const std::vector<ParsedEvent> events = ReadEvents(writer.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_GT(events[0].wall_time, 1.6e9);
  EXPECT_TRUE(events[0].scalars.empty());
  EXPECT_EQ(events[1].step, 300);
  EXPECT_EQ(events[1].scalars, (std::map<std::string, float>{{"loss/policy", -0.5f}, {"return", 475.f}}));
  EXPECT_EQ(events[2].step, std::int64_t{1} << 40);
  EXPECT_EQ(events[2].scalars.at("loss"), 2.f);
}

TEST(TensorBoard, FileNameIsWhatTensorBoardLooksFor) {
  TestFolder folder;
  const std::string name = TensorBoardWriter(folder.path()).path().filename().string();
  EXPECT_TRUE(name.starts_with("events.out.tfevents."));
  EXPECT_GT(std::stoll(name.substr(20, 10)), 1'600'000'000);
  EXPECT_EQ(name[30], '.');
}

TEST(TensorBoard, NanIsLeftOutAndInfinityKept) {
  TestFolder folder;
  TensorBoardWriter writer(folder.path());
  writer.Append(Row(1, std::numeric_limits<double>::quiet_NaN()));
  MetricRow mixed = Row(2, std::numeric_limits<double>::quiet_NaN());
  mixed.Set("up", std::numeric_limits<double>::infinity());
  writer.Append(mixed);
  const std::vector<ParsedEvent> events = ReadEvents(writer.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].scalars.size(), 1u);
  EXPECT_TRUE(std::isinf(events[1].scalars.at("up")));
}

TEST(TensorBoard, ResumeStartsALaterFileThatPurgesFromTheNextStep) {
  TestFolder folder;
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i) {
    TensorBoardWriter writer(folder.path(), i == 0 ? std::nullopt : std::optional<std::int64_t>(100 * i));
    names.push_back(writer.path().filename().string());
    const std::vector<ParsedEvent> events = ReadEvents(writer.path());
    ASSERT_EQ(events.size(), i == 0 ? 1u : 2u);
    EXPECT_EQ(events[0].version, "brain.Event:2");
    if (i == 0) continue;
    EXPECT_EQ(events[1].session_status, 1u);
    EXPECT_EQ(events[1].step, 100 * i + 1);
  }
  EXPECT_LT(names[0], names[1]);
  EXPECT_LT(names[1], names[2]);
}

TEST(TensorBoard, SortsAfterFilesFromTheFutureAndIgnoresStrangeNames) {
  TestFolder folder;
  const std::string future = "events.out.tfevents.4000000000.host.1";
  for (const std::string& name : {future, std::string("events.out.tfevents.x"), std::string("other"),
                                  std::string("events.out.tfevents.99999999999999999999999.h")}) {
    std::ofstream(folder / name) << "";
  }
  EXPECT_TRUE(TensorBoardWriter(folder.path())
                  .path()
                  .filename()
                  .string()
                  .starts_with("events.out.tfevents.4000000001."));
}

TEST(TensorBoard, UnwritableFolderIsNamed) {
  TestFolder folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_TRUE(Contains(ErrorOf([&] { TensorBoardWriter writer(folder / "file"); }), "file"));
}

TEST(TensorBoard, DiskFullInTheMiddleOfAnEventLeavesWholeEvents) {
  TestFolder folder;
  TensorBoardWriter writer(folder.path());
  writer.Append(Row(1, 1));
  {
    FileSizeLimit limit(std::filesystem::file_size(writer.path()) + 7);
    EXPECT_TRUE(Contains(ErrorOf([&] { writer.Append(Row(2, 2)); }), writer.path().string()));
  }
  writer.Append(Row(3, 3));
  const std::vector<ParsedEvent> events = ReadEvents(writer.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2].step, 3);
}

// Exit status and output of python/check_tensorboard.py.
std::pair<int, std::string> RunChecker(const TestFolder& folder, const std::filesystem::path& events) {
  const std::filesystem::path output = folder / "output";
  const std::string command =  // with the interpreter of scripts/python-env where there is one
      fmt::format(
          "PATH='{0}/../build/venv/bin':\"$PATH\" python3 '{0}/check_tensorboard.py' '{1}' > '{2}' "
          "2>/dev/null",
          TRIREME_PYTHON_FOLDER, events.string(), output.string());
  const int status = std::system(command.c_str());
  return {WEXITSTATUS(status), ReadFile(output)};
}

// A run that was killed while it wrote step 400, and resumed from its checkpoint at step 200.
TEST(TensorBoard, TensorBoardItselfReadsAKilledAndResumedRun) {
  TestFolder folder;
  const std::filesystem::path tb = folder / "tb";
  {
    TensorBoardWriter writer(tb);
    for (int i = 1; i <= 4; ++i) writer.Append(Row(100 * i, 1));
    std::filesystem::resize_file(writer.path(), std::filesystem::file_size(writer.path()) - 3);
  }
  TensorBoardWriter resumed(tb, 200);
  for (int i = 3; i <= 5; ++i) resumed.Append(Row(100 * i, 2));
  const auto [status, output] = RunChecker(folder, tb);
  if (status == 77 || status == 127) GTEST_SKIP() << "python3 with the tensorboard package is not installed";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(output, "loss  5 points  steps 100..500  last 2\n");

  std::filesystem::create_directories(folder / "empty");
  EXPECT_EQ(RunChecker(folder, folder / "empty").first, 1);
  EXPECT_EQ(RunChecker(folder, folder / "missing").first, 1);
}

}  // namespace
}  // namespace trireme
