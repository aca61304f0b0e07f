// What senders make of codecs: gradients with error feedback, parameters as differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/codec/difference.h"
#include "trireme/codec/gradient_encoder.h"

namespace trireme {
namespace {

std::vector<float> Normal(std::size_t size, std::uint64_t step) {
  RandomStream random(6, Purpose::kTest, 0, step);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.NextNormal());
  return values;
}

TEST(DifferenceCoderTest, BothEndsHoldTheSameBitsAndComeCloser) {
  for (const char* codec : {"fp16", "bf16", "int8", "onebit", "topk=0.01"}) {
    DifferenceCoder sender(codec, 1000), receiver(codec, 1500);
    const std::vector<float> values = Normal(1000, 0);
    std::vector<float> held = Normal(1000, 1), theirs = held;
    std::vector<std::byte> message(sender.bytes(1000));
    const auto distance = [&] {
      double most = 0;
      for (std::size_t i = 0; i < held.size(); ++i)
        most = std::max(most, std::abs(double{values[i]} - held[i]));
      return most;
    };
    const double before = distance();
    for (int round = 0; round < 200; ++round) {
      ASSERT_TRUE(sender.Encode(values, held, message));
      receiver.Add(message, theirs);
      ASSERT_EQ(held, theirs) << codec;
    }
    EXPECT_LT(distance(), 0.01 * before) << codec;
  }
}

TEST(DifferenceCoderTest, WhatIsNotFiniteIsToBeSentWhole) {
  DifferenceCoder coder("int8", 10);
  std::vector<float> values(10, 1), held(10, 2);
  values[3] = std::nanf("");
  std::vector<std::byte> message(coder.bytes(10));
  EXPECT_FALSE(coder.Encode(values, held, message));
  EXPECT_EQ(held, std::vector<float>(10, 2));
}

TEST(DifferenceCoderTest, CodecsThatRememberMoreAreRefused) {
  EXPECT_THROW(DifferenceCoder("powersgd=4", 10), Error);
  EXPECT_THROW(CheckDifferenceCodec("powersgd=4"), Error);
  EXPECT_THROW(CheckDifferenceCodec("gzip"), Error);
  CheckDifferenceCodec("none");
  CheckDifferenceCodec("int8");
}

std::vector<std::byte> Encode(GradientEncoder& encoder, int part, const std::vector<float>& gradient) {
  std::vector<std::byte> message(encoder.bytes(part));
  encoder.Encode(part, gradient, message);
  return message;
}

TEST(GradientEncoderTest, WhatIsTakenBackWasNotSent) {
  GradientEncoder encoder("topk=0.1", {{0, 40}, {40, 60}}), other("topk=0.1", {{0, 40}, {40, 60}});
  const std::vector<float> first = Normal(100, 0), second = Normal(100, 1), third = Normal(100, 2);
  Encode(encoder, 1, first);
  Encode(other, 1, first);
  const double norm = encoder.ResidualNorm();
  const std::vector<std::byte> message = Encode(encoder, 1, second);
  EXPECT_NE(encoder.ResidualNorm(), norm);
  encoder.TakeBack(1, second, message);
  EXPECT_NEAR(encoder.ResidualNorm(), norm, 1e-5);
  std::vector<float> said(60), expected(60);
  encoder.codec().Decode(Encode(encoder, 1, third), said);
  other.codec().Decode(Encode(other, 1, third), expected);
  for (std::size_t i = 0; i < said.size(); ++i) EXPECT_NEAR(said[i], expected[i], 1e-5);
}

TEST(GradientEncoderTest, SavedResidualsGoOn) {
  for (const char* codec : {"int8", "powersgd=2"}) {
    GradientEncoder one(codec, {{0, 40}, {40, 60}}), two(codec, {{0, 40}, {40, 60}});
    Encode(one, 0, Normal(100, 0));
    Encode(one, 1, Normal(100, 1));
    StateWriter out;
    one.Save(0, out);
    EXPECT_EQ(two.Load(0, 1, StateReader(out.Encode())), GradientEncoder::Loaded::kExactly);
    for (int part = 0; part < 2; ++part)
      EXPECT_EQ(Encode(one, part, Normal(100, 2)), Encode(two, part, Normal(100, 2))) << codec;
    // Other parts, as with other servers: the residual is the same, what the codec remembers is not.
    GradientEncoder whole(codec, {{0, 100}});
    EXPECT_EQ(whole.Load(0, 1, StateReader(out.Encode())), GradientEncoder::Loaded::kExactly);
    GradientEncoder another(codec, {{0, 99}});
    EXPECT_THROW(another.Load(0, 1, StateReader(out.Encode())), Error);
    EXPECT_THROW(another.Load(0, 2, StateReader(out.Encode())), Error);
    EXPECT_EQ(another.Load(0, 2, StateReader(StateWriter().Encode())), GradientEncoder::Loaded::kNothing);
  }
}

// Whoever leads must not begin, and change the folder of a run, when another cannot.
TEST(GradientEncoderTest, WhatIsWrongWithOneSenderIsSaidByAll) {
  const std::vector<float> good(100, 1.0f), shorter(99, 1.0f), none;
  std::vector<float> not_finite = good;
  not_finite[7] = std::numeric_limits<float>::quiet_NaN();
  const auto load = [&](int rank, int ranks, const std::vector<float>& values,
                        std::span<const float> memory) {
    StateWriter out;
    GradientEncoder encoder("powersgd=2", {{0, 100}});
    encoder.Save(0, out);
    if (!values.empty()) out.Put<float>("residual/1/values", values);
    out.Put<float>("residual/1/memory", memory);
    out.PutText("residual/1/layout", "powersgd=2, 1 parts");
    return encoder.Load(rank, ranks, StateReader(out.Encode()));
  };
  const CodecState state = MakeCodec("powersgd=2")->MakeState(100);
  const std::vector<float> memory(state.memory.size(), 1.0f);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(load(rank, 2, good, memory), GradientEncoder::Loaded::kExactly);
    EXPECT_EQ(load(rank, 4, good, memory), GradientEncoder::Loaded::kSummed);
    for (const int ranks : {2, 4}) {
      for (const std::vector<float>& bad : {shorter, not_finite, none})
        EXPECT_THROW(load(rank, ranks, bad, memory), Error);
    }
    EXPECT_THROW(load(rank, 2, good, std::span(memory).first(1)), Error);
  }
}

TEST(GradientEncoderTest, AllIsFlushedOnce) {
  GradientEncoder encoder("topk=0.1", {{0, 40}, {40, 60}});
  const std::vector<float> gradient = Normal(100, 0);
  std::vector<float> total(100);
  for (int part = 0; part < 2; ++part) {
    const std::size_t begin = part == 0 ? 0 : 40, size = part == 0 ? 40 : 60;
    std::vector<float> said(size);
    encoder.codec().Decode(Encode(encoder, part, gradient), said);
    std::ranges::copy(said, total.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  encoder.Flush(total);
  EXPECT_EQ(total, gradient);
  EXPECT_EQ(encoder.ResidualNorm(), 0);
}

}  // namespace
}  // namespace trireme
