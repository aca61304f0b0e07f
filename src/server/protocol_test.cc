#include "trireme/server/protocol.h"

#include <gtest/gtest.h>

#include "trireme/optim/clip.h"
#include "trireme/server/payload.h"
#include "trireme/server/test_cluster.h"

namespace trireme {
namespace {

class Bytes final : public Incoming {
 public:
  explicit Bytes(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  std::size_t size() const override { return bytes_.size() - offset_; }
  void Read(std::span<std::byte> to) override {
    TRIREME_CHECK(to.size() <= size());
    std::copy_n(bytes_.begin() + offset_, to.size(), to.begin());
    offset_ += to.size();
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t offset_ = 0;
};

Bytes Written(const Header& header, std::size_t behind) {
  std::vector<std::byte> bytes(sizeof header + behind);
  std::memcpy(bytes.data(), &header, sizeof header);
  return Bytes(std::move(bytes));
}

TEST(Protocol, AMessageIsReadAsItWasWritten) {
  const std::vector<float> floats = {1, 2, 3};
  const std::vector<double> doubles = {4, 5};
  const Outgoing message = MakeMessage({.kind = MessageKind::kPush, .sequence = 9}, floats, doubles, "text");
  Bytes in({message->begin(), message->end()});
  const Header header = ReadHeader(in);
  EXPECT_EQ(header.kind, MessageKind::kPush);
  EXPECT_EQ(header.sequence, 9u);
  std::vector<float> read(header.floats);
  ReadFloats(in, read);
  EXPECT_EQ(read, floats);
  EXPECT_EQ(ReadDoubles(in, header), doubles);
  EXPECT_EQ(ReadText(in, header), "text");
  EXPECT_EQ(in.size(), 0u);
}

TEST(Protocol, SizesThatLieAreRefused) {
  for (std::size_t size = 0; size < sizeof(Header); ++size) {
    Bytes in{std::vector<std::byte>(size)};
    EXPECT_THROW(ReadHeader(in), Error);
  }
  Bytes fits = Written({.floats = 2}, 8);
  EXPECT_EQ(ReadHeader(fits).floats, 2u);
  const std::uint64_t absurd[] = {1, 3, 1u << 30, std::uint64_t{1} << 62, UINT64_MAX, UINT64_MAX / 4 + 3};
  for (const std::uint64_t count : absurd) {
    Bytes floats = Written({.floats = count}, 8), doubles = Written({.doubles = count + 1}, 8),
          bytes = Written({.bytes = count}, 8);
    EXPECT_THROW(ReadHeader(floats), Error) << count;
    EXPECT_THROW(ReadHeader(doubles), Error) << count;
    EXPECT_THROW(ReadHeader(bytes), Error) << count;
  }
  Header other;
  other.magic[3] = '0';
  Bytes in = Written(other, 0);
  EXPECT_THROW(ReadHeader(in), Error);
}

TEST(Protocol, GreetingsSurviveTheWay) {
  Greeting greeting{.worker = UINT64_MAX,
                    .rank = 3,
                    .clock = 12,
                    .server = 1,
                    .continues = true,
                    .terms = TestTerms(Pace::kSsp, 4, 2)};
  greeting.terms.network = "64-64 \"tanh\"\n";
  greeting.terms.optimizer.eps = 1.0 / 3;
  const Greeting read = Greeting::Decode(greeting.Encode());
  EXPECT_EQ(read.worker, UINT64_MAX);
  EXPECT_EQ(read.rank, 3);
  EXPECT_EQ(read.clock, 12u);
  EXPECT_TRUE(read.continues);
  read.terms.CheckEqual(greeting.terms);
}

TEST(Protocol, NonsenseInGreetingsIsRefused) {
  const std::string good = Greeting{.terms = TestTerms(Pace::kSync, 4, 2)}.Encode();
  EXPECT_NO_THROW(Greeting::Decode(good));
  for (const char* line :
       {"server = 2", "servers = 0", "servers = 99999", "workers = 0", "workers = 1e9", "rank = -2",
        "params = 0", "lease_s = nan", "pace = \"never\"", "unknown = 1", "\x01\xff", "clock = -1"}) {
    EXPECT_THROW(Greeting::Decode(std::string(line) + "\n"), Error) << line;
  }
}

TEST(Protocol, TheFirstDifferenceIsNamed) {
  const RunTerms ours = TestTerms(Pace::kSync, 4, 2);
  const auto difference = [&](const std::function<void(RunTerms&)>& change) {
    RunTerms theirs = ours;
    change(theirs);
    try {
      ours.CheckEqual(theirs);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(difference([](RunTerms&) {}), "");
  EXPECT_NE(difference([](RunTerms& t) { t.seed = 8; }).find("seed 7, the worker 8"), std::string::npos);
  EXPECT_NE(difference([](RunTerms& t) { t.network = "x"; }).find("network"), std::string::npos);
  EXPECT_NE(difference([](RunTerms& t) { t.version = "2"; }).find("version"), std::string::npos);
  EXPECT_NE(difference([](RunTerms& t) { t.optimizer.eps = 1e-6; }).find("optimizer_eps"), std::string::npos);
  EXPECT_NE(difference([](RunTerms& t) { t.workers = 5; }).find("workers"), std::string::npos);
}

TEST(Protocol, PartsOfServersCoverAllParameters) {
  for (const std::uint64_t params : {1u, 37u, 1024u, 1025u, 5000u, 100000u}) {
    for (const int servers : {1, 2, 3, 7}) {
      RunTerms terms;
      terms.params = params;
      terms.servers = servers;
      std::size_t end = 0;
      for (int i = 0; i < servers; ++i) {
        const PartRange range = RangeOfServer(terms, i);
        EXPECT_EQ(range.begin, end);
        EXPECT_TRUE(range.begin % kNormBlock == 0 || range.size == 0);
        end += range.size;
      }
      EXPECT_EQ(end, params);
    }
  }
}

TEST(Protocol, RanksAndGatheredBytes) {
  EXPECT_EQ(DecodeRanks(EncodeRanks({0, 3, 1023})), (Ranks{0, 3, 1023}));
  EXPECT_THROW(DecodeRanks("abc"), Error);
  EXPECT_THROW(DecodeRanks(EncodeRanks({3, 3})), Error);
  EXPECT_THROW(DecodeRanks(EncodeRanks({4, 3})), Error);
  EXPECT_THROW(DecodeRanks(EncodeRanks({1024})), Error);

  const std::string encoded = EncodeGathered({{1, "one"}, {5, std::string_view("\0x", 2)}});
  EXPECT_EQ(DecodeGathered(encoded), (std::map<int, std::string>{{1, "one"}, {5, std::string("\0x", 2)}}));
  for (std::size_t size = 1; size < encoded.size(); ++size) {
    try {
      EXPECT_LT(DecodeGathered(encoded.substr(0, size)).size(), 2u);
    } catch (const Error&) {
    }
  }
}

TEST(Protocol, ParameterGroups) {
  const ParameterGroups groups = {{0, 10, 0.5f}, {10, 20, 0}, {30, 100, -1, 0.25}};
  const std::string encoded = EncodeGroups(groups);
  EXPECT_TRUE(std::ranges::equal(DecodeGroups(encoded, 100).all(), groups.all()));
  EXPECT_TRUE(DecodeGroups("", 1).empty());
  EXPECT_THROW(DecodeGroups(encoded, 99), Error);
  EXPECT_THROW(DecodeGroups(encoded.substr(1), 100), Error);
  EXPECT_THROW(DecodeGroups(encoded.substr(0, 40), 100), Error);
  EXPECT_THROW(DecodeGroups(encoded + EncodeGroups({{20, 30}}), 100), Error) << "not in order";
  EXPECT_THROW(DecodeGroups(EncodeGroups({{0, 10}}) + EncodeGroups({{9, 20}}), 100), Error);
  std::string many;
  for (std::size_t i = 0; i < 9; ++i) many += EncodeGroups({{i, i + 1}});
  EXPECT_THROW(DecodeGroups(many, 100), Error);
  EXPECT_EQ(DecodeGroups(many.substr(many.size() / 9), 100).size(), 8u);
  ParameterGroups odd;
  odd.Append({0, 10, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_THROW(DecodeGroups(EncodeGroups(odd), 100), Error);
}

}  // namespace
}  // namespace trireme
