#include "trireme/env/row.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace trireme {
namespace {

EnvSpec Spec(ObsType type, bool masks) {
  EnvSpec spec;
  spec.obs = {{5}, type};
  spec.action = ActionSpace::MultiDiscrete({2, 4});
  spec.masks = masks;
  return spec;
}

TEST(Row, FloatsWithoutMasksLieAsTheyAre) {
  const RowLayout layout(Spec(ObsType::kFloat32, false));
  EXPECT_TRUE(layout.plain());
  EXPECT_EQ(layout.width(), 5u);
  std::vector<float> obs(3 * 5), rows(3 * 5);
  std::iota(obs.begin(), obs.end(), 1.0f);
  layout.Pack(std::as_bytes(std::span(obs)).data(), nullptr, 3, rows.data());
  EXPECT_EQ(rows, obs);
  std::vector<float> scratch;
  EXPECT_EQ(layout.ReadObs(rows.data(), 3, scratch), rows.data());
  EXPECT_TRUE(scratch.empty());
  std::vector<std::uint8_t> masks;
  EXPECT_EQ(layout.ReadMasks(rows.data(), 3, masks), nullptr);
  const std::vector<int> index = {2, 0};
  EXPECT_EQ(layout.GatherMasks(rows.data(), index, masks), nullptr);
  std::vector<float> gathered(10);
  layout.GatherObs(rows.data(), index, gathered);
  EXPECT_EQ(gathered, (std::vector<float>{11, 12, 13, 14, 15, 1, 2, 3, 4, 5}));
}

TEST(Row, BytesAndMasksArePackedAndComeBack) {
  for (const ObsType type : {ObsType::kFloat32, ObsType::kUint8}) {
    for (const bool masked : {false, true}) {
      const EnvSpec spec = Spec(type, masked);
      const RowLayout layout(spec);
      const bool bytes = type == ObsType::kUint8;
      EXPECT_EQ(layout.plain(), !bytes && !masked);
      EXPECT_EQ(layout.width(), ((bytes ? 5u : 20u) + (masked ? 6 : 0) + 3) / 4);
      std::vector<std::byte> obs;
      std::vector<float> floats;
      std::vector<std::uint8_t> masks;
      for (int i = 0; i < 3 * 5; ++i) {
        const int value = 255 - 17 * i;
        if (bytes) {
          obs.push_back(static_cast<std::byte>(value));
        } else {
          const float number = static_cast<float>(value);
          const auto* raw = reinterpret_cast<const std::byte*>(&number);
          obs.insert(obs.end(), raw, raw + sizeof number);
        }
        floats.push_back(bytes ? static_cast<float>(value) * kByteScale : static_cast<float>(value));
      }
      for (int i = 0; i < 3 * 6; ++i) masks.push_back(i % 3 == 0);
      std::vector<float> rows(3 * layout.width());
      layout.Pack(obs.data(), masks.data(), 3, rows.data());
      std::vector<float> scratch;
      const float* read = layout.ReadObs(rows.data(), 3, scratch);
      EXPECT_EQ(std::vector<float>(read, read + 15), floats);
      std::vector<float> gathered(15);
      const std::vector<int> index = {1, 1, 2};
      layout.GatherObs(rows.data(), index, gathered);
      for (int i = 0; i < 5; ++i) EXPECT_EQ(gathered[10 + i], floats[10 + i]);
      for (int i = 0; i < 5; ++i) EXPECT_EQ(gathered[i], floats[5 + i]);
      if (!masked) continue;
      std::vector<std::uint8_t> all, some;
      const std::uint8_t* back = layout.ReadMasks(rows.data(), 3, all);
      EXPECT_EQ(std::vector<std::uint8_t>(back, back + 18), masks);
      const std::uint8_t* picked = layout.GatherMasks(rows.data(), index, some);
      EXPECT_EQ(std::vector<std::uint8_t>(picked + 12, picked + 18),
                std::vector<std::uint8_t>(masks.begin() + 12, masks.end()));
    }
  }
}

TEST(Row, FloatsOfSixteenBitsTakeHalfTheRoomAndComeBackRounded) {
  for (const Precision kept : {Precision::kBf16, Precision::kFp16}) {
    for (const bool masked : {false, true}) {
      EnvSpec spec = Spec(ObsType::kFloat32, masked);
      spec.kept = kept;
      const RowLayout layout(spec);
      EXPECT_FALSE(layout.plain());
      EXPECT_EQ(layout.width(), (10u + (masked ? 6 : 0) + 3) / 4);
      std::vector<float> obs, expected;
      for (int i = 0; i < 3 * 5; ++i) {
        obs.push_back(0.1f * static_cast<float>(i) - 0.7f);
        expected.push_back(kept == Precision::kFp16 ? Fp16::From(Fp16::To(obs.back()))
                                                    : Bf16::From(Bf16::To(obs.back())));
      }
      std::vector<std::uint8_t> masks(3 * 6);
      for (int i = 0; i < 3 * 6; ++i) masks[i] = i % 3 == 0;
      std::vector<float> rows(3 * layout.width()), scratch, gathered(5);
      layout.Pack(std::as_bytes(std::span(obs)).data(), masks.data(), 3, rows.data());
      const float* read = layout.ReadObs(rows.data(), 3, scratch);
      EXPECT_EQ(std::vector<float>(read, read + 15), expected);
      layout.GatherObs(rows.data(), std::vector<int>{2}, gathered);
      EXPECT_EQ(gathered, std::vector<float>(expected.begin() + 10, expected.end()));
      std::vector<std::uint8_t> all;
      const std::uint8_t* back = layout.ReadMasks(rows.data(), 3, all);
      EXPECT_EQ(back == nullptr, !masked);
      if (back != nullptr) {
        EXPECT_EQ(std::vector<std::uint8_t>(back, back + 18), masks);
      }
    }
  }
  EnvSpec bytes = Spec(ObsType::kUint8, false);
  bytes.kept = Precision::kBf16;
  EXPECT_EQ(RowLayout(bytes).width(), 2u) << "bytes are less than 16 bits";
}

}  // namespace
}  // namespace trireme
