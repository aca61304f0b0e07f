// What every codec must keep to, whatever its kind: for tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/base/simd.h"
#include "trireme/codec/codec.h"

namespace trireme {

inline std::vector<float> Copy(const AlignedBuffer<float>& values) { return {values.begin(), values.end()}; }

class CodecConformance {
 public:
  // `most_residual`: how many times the values the residual may become when the same ones come again and again.
  CodecConformance(const std::string& text, double most_residual)
      : codec_(MakeCodec(text)), most_residual_(most_residual) {}

  void Check() {
    SCOPED_TRACE(codec_->name());
    EXPECT_EQ(MakeCodec(codec_->name())->name(), codec_->name());
    for (const std::size_t size : {0, 1, 2, 7, 8, 9, 31, 33, 64, 255, 256, 257, 1023, 1024, 1025, 4099}) {
      SCOPED_TRACE(size);
      NothingIsLost(size);
      InstructionSetsAgree(size);
      SizesAreChecked(size);
      AnyBytesAreSafe(size);
      if (size > 0) BadValuesAreRefused(size);
    }
    ResidualsStaySmall(1000);
  }

 private:
  // Sizes from 2^-140 to 2^40, zeros among them.
  static std::vector<float> Draw(std::size_t size, std::uint64_t step, bool wild) {
    RandomStream random(3, Purpose::kTest, static_cast<std::uint32_t>(size), step);
    std::vector<float> values(size);
    for (float& value : values) {
      const int exponent = wild ? static_cast<int>(random.NextBelow(180)) - 140 : 0;
      value = random.NextBelow(8) == 0 ? 0 : std::ldexp(static_cast<float>(random.NextNormal()), exponent);
    }
    return values;
  }

  // A message, at a place that is not aligned.
  std::vector<std::byte> Encode(const std::vector<float>& values, CodecState& state) const {
    std::vector<std::byte> out(codec_->bytes(values.size()) + 1);
    codec_->Encode(values, state, std::span(out).subspan(1));
    return out;
  }
  std::vector<float> Decode(const std::vector<std::byte>& message, std::size_t size) const {
    std::vector<float> values(size, 7);
    codec_->Decode(std::span(message).subspan(1), values);
    return values;
  }

  // After every message, what was sent and what is left are what was given.
  void NothingIsLost(std::size_t size) const {
    for (const bool wild : {false, true}) {
      CodecState state = codec_->MakeState(size);
      for (std::uint64_t step = 0; step < 5; ++step) {
        const std::vector<float> values = Draw(size, step, wild), before = Copy(state.residual);
        const std::vector<float> sent = Decode(Encode(values, state), size);
        for (std::size_t i = 0; i < size; ++i) {
          const float due = values[i] + before[i];
          const double scale = std::max({std::abs(due), std::abs(sent[i]), std::abs(state.residual[i])});
          ASSERT_LE(std::abs(double{sent[i]} + state.residual[i] - due), scale * 2.5e-7 + 1e-44) << i;
        }
      }
    }
  }
  void InstructionSetsAgree(std::size_t size) const {
    const Isa best = CurrentIsa();
    std::vector<std::vector<float>> residuals;
    std::vector<std::vector<std::byte>> messages;
    for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
      OverrideIsa(isa);
      CodecState state = codec_->MakeState(size);
      Encode(Draw(size, 0, true), state);
      messages.push_back(Encode(Draw(size, 1, false), state));
      residuals.push_back(Copy(state.residual));
      residuals.push_back(Decode(messages.back(), size));
      EXPECT_EQ(messages.back(), messages.front());
      for (std::size_t i = 0; i < 2 && size > 0; ++i)
        EXPECT_EQ(0, std::memcmp(residuals[residuals.size() - 2 + i].data(), residuals[i].data(),
                                 size * sizeof(float)));
    }
    OverrideIsa(best);
  }

  void SizesAreChecked(std::size_t size) const {
    std::vector<std::byte> message(codec_->bytes(size));
    std::vector<float> values(size);
    message.resize(message.size() + 1);
    EXPECT_THROW(codec_->Decode(message, values), Error);
    if (message.size() < 2) return;
    message.resize(message.size() - 2);
    EXPECT_THROW(codec_->Decode(message, values), Error);
  }

  // Whatever others may send: numbers, or an error.
  void AnyBytesAreSafe(std::size_t size) const {
    RandomStream random(4, Purpose::kTest, static_cast<std::uint32_t>(size), 0);
    std::vector<float> values(size);
    for (int message = 0; message < 30; ++message) {
      std::vector<std::byte> bytes(codec_->bytes(size));
      for (std::byte& byte : bytes)
        byte = static_cast<std::byte>(message == 0 ? 0xFF : random.NextBelow(256));
      try {
        codec_->Decode(bytes, values);
        for (const float value : values) ASSERT_TRUE(std::isfinite(value));
      } catch (const Error&) {
      }
    }
  }

  void BadValuesAreRefused(std::size_t size) const {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(), 1e38f}) {
      CodecState state = codec_->MakeState(size);
      Encode(Draw(size, 0, false), state);
      const std::vector<float> residual = Copy(state.residual), memory = Copy(state.memory);
      std::vector<float> values = Draw(size, 1, false);
      values[size - 1] = bad;
      EXPECT_THROW(Encode(values, state), Error) << bad;
      EXPECT_EQ(Copy(state.residual), residual);
      EXPECT_EQ(Copy(state.memory), memory);
    }
  }

  void ResidualsStaySmall(std::size_t size) const {
    const std::vector<float> values = Draw(size, 0, false);
    double norm = 0, left = 0;
    CodecState state = codec_->MakeState(size);
    for (int step = 0; step < 2000; ++step) Encode(values, state);
    for (std::size_t i = 0; i < size; ++i) {
      norm += double{values[i]} * values[i];
      left += double{state.residual[i]} * state.residual[i];
    }
    EXPECT_LE(std::sqrt(left), most_residual_ * std::sqrt(norm));
  }

  std::unique_ptr<Codec> codec_;
  double most_residual_;
};

}  // namespace trireme
