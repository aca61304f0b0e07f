#include "trireme/codec/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "trireme/codec/conformance.h"

namespace trireme {
namespace {

struct Sent {
  std::vector<float> values, residual;
};
Sent Send(const std::string& codec, const std::vector<float>& values) {
  const auto made = MakeCodec(codec);
  CodecState state = made->MakeState(values.size());
  std::vector<std::byte> message(made->bytes(values.size()));
  made->Encode(values, state, message);
  Sent sent{std::vector<float>(values.size()), {}};
  made->Decode(message, sent.values);
  sent.residual = Copy(state.residual);
  return sent;
}
std::vector<float> Normal(std::size_t size, std::uint64_t step = 0) {
  RandomStream random(5, Purpose::kTest, 0, step);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.NextNormal());
  return values;
}

TEST(CodecTest, AllConform) {
  CodecConformance("fp16", 0.001).Check();
  CodecConformance("bf16", 0.005).Check();
  CodecConformance("int8", 0.02).Check();
  CodecConformance("onebit", 30).Check();
  CodecConformance("topk=0.01", 70).Check();
  CodecConformance("topk=1", 0).Check();
  CodecConformance("powersgd=1", 60).Check();
  CodecConformance("powersgd=4", 20).Check();
}

TEST(CodecTest, EveryEntryCanBeMade) {
  for (const CodecEntry& entry : Codecs()) {
    const std::string text = fmt::format("{}{}", entry.name, entry.argument ? "=1" : "");
    EXPECT_EQ(MakeCodec(text)->name(), text);
  }
}

TEST(CodecTest, WhatThereIsNotIsNamed) {
  for (const char* text : {"", "fp8", "fp16=2", "topk", "topk=", "topk=0", "topk=2", "topk=x", "topk=nan",
                           "powersgd=0", "powersgd=2.5", "powersgd=65", "int8 ", "=1"}) {
    EXPECT_THROW(MakeCodec(text), Error) << text;
  }
  try {
    MakeCodec("gzip");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "there is no way to compress called 'gzip': there are fp16, bf16, int8, onebit, topk=SHARE, "
                 "powersgd=RANK");
  }
}

// Against the compiler's own, for values of every exponent, and all that lie between two.
TEST(CodecTest, Fp16RoundsToNearestEven) {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float here = static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits)));
    const float next = bits + 1 < 0x7C00
                           ? static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits + 1)))
                           : here;
    const float middle = here + (next - here) / 2;
    for (const float value : {here, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  const Sent sent = Send("fp16", values);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(sent.values[i], static_cast<float>(static_cast<_Float16>(values[i]))) << values[i];
}

TEST(CodecTest, WhatIsTooLargeForFp16IsSentInSeveralMessages) {
  const Sent sent = Send("fp16", {1e5f, -1e5f, 65519, 65520});
  EXPECT_EQ(sent.values, (std::vector<float>{65504, -65504, 65504, 65504}));
  EXPECT_EQ(sent.residual, (std::vector<float>{34496, -34496, 15, 16}));
}

TEST(CodecTest, Bf16RoundsToNearestEven) {
  const float one = 1, step = 0x1p-7f;
  const Sent sent = Send("bf16", {one, one + step / 2, one + step, one + 1.5f * step, one + 0.51f * step,
                                  -one - step / 2, 1e30f});
  EXPECT_EQ(sent.values[1], one);
  EXPECT_EQ(sent.values[2], one + step);
  EXPECT_EQ(sent.values[3], one + 2 * step);
  EXPECT_EQ(sent.values[4], one + step);
  EXPECT_EQ(sent.values[5], -one);
  EXPECT_NEAR(sent.values[6] / 1e30f, 1, 0.004);
}

TEST(CodecTest, Int8IsHalfAStepOffAtMost) {
  const std::vector<float> values = Normal(1000);
  const Sent sent = Send("int8", values);
  for (std::size_t block = 0; block < values.size(); block += 256) {
    const std::size_t end = std::min(values.size(), block + 256);
    float most = 0;
    for (std::size_t i = block; i < end; ++i) most = std::max(most, std::abs(values[i]));
    for (std::size_t i = block; i < end; ++i) {
      EXPECT_LE(std::abs(sent.values[i] - values[i]), most / 127 * 0.5001) << i;
      if (std::abs(values[i]) == most) {
        EXPECT_FLOAT_EQ(sent.values[i], values[i]);
      }
    }
  }
}

TEST(CodecTest, OneBitSendsMeans) {
  const Sent sent = Send("onebit", {1, -2, 3, -4, 0, -6, 8, 10, -4});
  const std::vector<float> expected = {22.0f / 5, -4, 22.0f / 5, -4, 22.0f / 5, -4, 22.0f / 5, 22.0f / 5, -4};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_FLOAT_EQ(sent.values[i], expected[i]) << i;
}

TEST(CodecTest, TopKSendsTheLargestAsTheyAre) {
  for (const std::size_t size : {1u, 10u, 999u, 5000u}) {
    for (const double share : {0.01, 0.3, 0.999}) {
      std::vector<float> values = Normal(size, size);
      for (std::size_t i = 0; i < size; i += 3) values[i] = std::round(values[i]);  // some are equal
      if (size == 999) {  // and here all are about as large
        for (float& value : values) value = std::copysign(1 + std::abs(value) * 0.02f, value);
      }
      std::vector<std::size_t> order(size);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(
          order, [&](std::size_t a, std::size_t b) { return std::abs(values[a]) > std::abs(values[b]); });
      std::vector<float> expected(size);
      for (std::size_t i = 0; i < static_cast<std::size_t>(std::ceil(share * static_cast<double>(size))); ++i)
        expected[order[i]] = values[order[i]];
      const Sent sent = Send(fmt::format("topk={}", share), values);
      EXPECT_EQ(sent.values, expected) << size << " " << share;
      for (std::size_t i = 0; i < size; ++i) EXPECT_EQ(sent.residual[i], expected[i] == 0 ? values[i] : 0);
    }
  }
}

TEST(CodecTest, PlacesOfTopKRise) {
  const auto codec = MakeCodec("topk=0.5");
  std::vector<std::byte> message(codec->bytes(4));
  std::vector<float> values(4);
  const auto decode = [&](std::uint32_t a, std::uint32_t b) {
    std::memcpy(message.data(), &a, 4);
    std::memcpy(message.data() + 4, &b, 4);
    codec->Decode(message, values);
  };
  decode(0, 3);
  EXPECT_THROW(decode(3, 0), Error);
  EXPECT_THROW(decode(2, 2), Error);
  EXPECT_THROW(decode(0, 4), Error);
}

// A matrix of rank two is sent whole by two columns, in the second message at the latest.
TEST(CodecTest, PowerSgdFindsWhatHasFewColumns) {
  constexpr std::size_t kSide = 40;
  const std::vector<float> a = Normal(2 * kSide, 1), b = Normal(2 * kSide, 2);
  std::vector<float> values(kSide * kSide);
  for (std::size_t row = 0; row < kSide; ++row) {
    for (std::size_t column = 0; column < kSide; ++column)
      values[row * kSide + column] = a[row] * b[column] + a[kSide + row] * b[kSide + column];
  }
  const Sent two = Send("powersgd=2", values), one = Send("powersgd=1", values);
  double left_of_two = 0, left_of_one = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    left_of_two = std::max<double>(left_of_two, std::abs(two.residual[i]));
    left_of_one = std::max<double>(left_of_one, std::abs(one.residual[i]));
  }
  EXPECT_LT(left_of_two, 1e-4);
  EXPECT_GT(left_of_one, 0.1);
}

TEST(CodecTest, BytesAreFew) {
  constexpr std::size_t kSize = 1'000'000;
  const auto times = [&](const char* text) {
    return 4.0 * kSize / static_cast<double>(MakeCodec(text)->bytes(kSize));
  };
  EXPECT_EQ(times("fp16"), 2);
  EXPECT_GT(times("int8"), 3.9);
  EXPECT_GT(times("onebit"), 25);
  EXPECT_EQ(times("topk=0.01"), 50);
  EXPECT_GT(times("powersgd=4"), 100);
}

}  // namespace
}  // namespace trireme
