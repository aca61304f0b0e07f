// What is encoded here is decoded by ffmpeg, and is what went in.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <numbers>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/rng.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/picture/canvas.h"
#include "trireme/picture/png.h"
#include "trireme/picture/test_decoder.h"
#include "trireme/picture/video.h"

namespace trireme {
namespace {

Decoded Decode(const std::string& bytes, const std::string& name) {
  const ScratchFolder folder;
  WriteFileAtomically(folder.path() / name, bytes);
  return DecodeFile(folder.path() / name);
}

// A hand that turns, on a white ground.
Picture Clock(int width, int height, int time) {
  Picture picture;
  Canvas canvas(picture, width, height, {255, 255, 255});
  const Point centre{width / 2.0, height / 2.0};
  canvas.DrawLine(centre, Turned({centre.x, centre.y - 0.4 * height}, 0.3 * time, centre), 6, {0, 114, 178});
  return picture;
}

// Every pixel another colour.
Picture Noise(int width, int height, std::uint64_t seed) {
  Picture picture;
  picture.Fill(width, height, {});
  RandomStream random(seed, Purpose::kTest, 0, 0);
  for (std::uint8_t& value : picture.rgb) value = static_cast<std::uint8_t>(random.NextBelow(256));
  return picture;
}

// Many more than 256 colours, but smooth.
Picture Gradient(int width, int height, int time) {
  Picture picture;
  picture.Fill(width, height, {});
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      std::uint8_t* pixel = &picture.rgb[(static_cast<std::size_t>(y) * width + x) * 3];
      pixel[0] = static_cast<std::uint8_t>(255 * x / width);
      pixel[1] = static_cast<std::uint8_t>(255 * y / height);
      pixel[2] = static_cast<std::uint8_t>((20 * time) % 256);
    }
  }
  return picture;
}

double MeanError(const Picture& a, const Picture& b) {
  double error = 0;
  for (std::size_t i = 0; i < a.rgb.size(); ++i) error += std::abs(a.rgb[i] - b.rgb[i]);
  return error / static_cast<double>(a.rgb.size());
}

int LargestError(const Picture& a, const Picture& b) {
  int error = 0;
  for (std::size_t i = 0; i < a.rgb.size(); ++i) error = std::max(error, std::abs(a.rgb[i] - b.rgb[i]));
  return error;
}

std::string Encode(std::unique_ptr<VideoEncoder> encoder, int count,
                   const std::function<Picture(int)>& picture) {
  for (int i = 0; i < count; ++i) encoder->Add(picture(i));
  return encoder->Finish();
}

TEST(Png, IsDecodedExactly) {
  for (const Picture& picture : {Clock(60, 40, 3), Noise(37, 23, 1), Noise(1, 1, 2), Gradient(300, 200, 5)}) {
    const Decoded decoded = Decode(EncodePng(picture), "a.png");
    ASSERT_EQ(decoded.pictures.size(), 1u);
    EXPECT_EQ(decoded.pictures[0], picture);
  }
}

TEST(Gif, DrawingsAreDecodedExactly) {
  const Decoded decoded = Decode(Encode(MakeGif(50), 40, [](int i) { return Clock(121, 81, i); }), "a.gif");
  EXPECT_EQ(decoded.codec, "gif");
  ASSERT_EQ(decoded.pictures.size(), 40u);
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(decoded.pictures[i], Clock(121, 81, i)) << i;
    EXPECT_NEAR(decoded.times_s[i], i / 50.0, 1e-9);
  }
  EXPECT_NEAR(decoded.duration_s, 0.8, 1e-9);
}

// The palette of the film is full after the first picture; the second has one of its own.
TEST(Gif, EveryPictureMayHave255ColoursOfItsOwn) {
  const auto picture = [](int i) { return Noise(17, 15, i); };
  const Decoded decoded = Decode(Encode(MakeGif(10), 5, picture), "a.gif");
  ASSERT_EQ(decoded.pictures.size(), 5u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(decoded.pictures[i], picture(i)) << i;
}

TEST(Gif, ManyColoursAreShownByTheirNeighbours) {
  const auto gradient = [](int i) { return Gradient(300, 200, i); };
  const Decoded decoded = Decode(Encode(MakeGif(25), 3, gradient), "a.gif");
  ASSERT_EQ(decoded.pictures.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_LT(MeanError(decoded.pictures[i], gradient(i)), 5) << i;
    EXPECT_LT(LargestError(decoded.pictures[i], gradient(i)), 20) << i;
  }
  // The dictionary of the compression is full and begins anew many times.
  const auto noise = [](int i) { return Noise(400, 300, i); };
  const Decoded noisy = Decode(Encode(MakeGif(25), 2, noise), "a.gif");
  ASSERT_EQ(noisy.pictures.size(), 2u);
  for (int i = 0; i < 2; ++i) EXPECT_LT(MeanError(noisy.pictures[i], noise(i)), 20) << i;
}

TEST(Gif, ColoursThatDoNotFitGoToTheirOwnTableAndOthersStay) {
  // 250 colours, then 10 others in a corner, then the first picture again.
  const auto picture = [](int i) {
    Picture p;
    p.Fill(25, 10, {});
    for (int k = 0; k < 250; ++k) p.rgb[k * 3] = static_cast<std::uint8_t>(k);
    for (int k = 0; i == 1 && k < 10; ++k) p.rgb[k * 3 + 1] = static_cast<std::uint8_t>(100 + k);
    return p;
  };
  const Decoded decoded = Decode(Encode(MakeGif(10), 3, picture), "a.gif");
  ASSERT_EQ(decoded.pictures.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(decoded.pictures[i], picture(i)) << i;
}

TEST(Gif, TimesDoNotDrift) {
  const Decoded decoded = Decode(Encode(MakeGif(30), 61, [](int i) { return Clock(40, 40, i); }), "a.gif");
  ASSERT_EQ(decoded.pictures.size(), 61u);
  for (int i = 0; i < 61; ++i) EXPECT_NEAR(decoded.times_s[i], i / 30.0, 0.0051);
}

TEST(Gif, WhatDoesNotChangeIsShownForLonger) {
  const auto still = [](int i) { return Clock(40, 40, i / 20); };
  const Decoded decoded = Decode(Encode(MakeGif(10), 60, still), "a.gif");
  ASSERT_EQ(decoded.pictures.size(), 3u);
  EXPECT_NEAR(decoded.times_s[2], 4, 1e-9);
  EXPECT_NEAR(decoded.duration_s, 6, 1e-9);
  // Longer than one frame can be.
  const Decoded slow = Decode(Encode(MakeGif(0.01), 12, [](int) { return Clock(40, 40, 1); }), "a.gif");
  EXPECT_NEAR(slow.duration_s, 1200, 1e-9);
  for (const Picture& picture : slow.pictures) EXPECT_EQ(picture, Clock(40, 40, 1));
}

TEST(Gif, IsSmall) {
  const std::string bytes = Encode(MakeGif(50), 100, [](int i) { return Clock(600, 400, i); });
  EXPECT_LT(bytes.size(), 400'000u);
}

struct Mp4 : testing::Test {
  void SetUp() override { setenv("TRIREME_PLUGINS", TRIREME_PLUGIN_FOLDER, 1); }
  void TearDown() override { unsetenv("TRIREME_PLUGINS"); }
};

TEST_F(Mp4, IsDecodedAlmostAsItWas) {
  const Decoded decoded = Decode(Encode(MakeMp4(50), 40, [](int i) { return Clock(120, 80, i); }), "a.mp4");
  EXPECT_TRUE(decoded.codec == "h264" || decoded.codec == "mpeg4") << decoded.codec;
  ASSERT_EQ(decoded.pictures.size(), 40u);
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(decoded.pictures[i].width, 120);
    EXPECT_EQ(decoded.pictures[i].height, 80);
    EXPECT_LT(MeanError(decoded.pictures[i], Clock(120, 80, i)), 3) << i;
    EXPECT_NEAR(decoded.times_s[i], i / 50.0, 1e-4);
  }
  EXPECT_NEAR(decoded.duration_s, 0.8, 1e-4);
}

TEST_F(Mp4, KeepsColours) {
  for (const Colour colour : {Colour{255, 255, 255}, {0, 0, 0}, {213, 94, 0}, {0, 114, 178}, {0, 158, 115}}) {
    Picture picture;
    picture.Fill(64, 48, colour);
    const Decoded decoded = Decode(Encode(MakeMp4(30), 2, [&](int) { return picture; }), "a.mp4");
    ASSERT_EQ(decoded.pictures.size(), 2u);
    EXPECT_LE(LargestError(decoded.pictures[1], picture), 6);
  }
}

TEST_F(Mp4, OddSizesGetALastRowAndColumnMore) {
  const Decoded decoded = Decode(Encode(MakeMp4(30), 3, [](int i) { return Clock(121, 81, i); }), "a.mp4");
  ASSERT_EQ(decoded.pictures.size(), 3u);
  EXPECT_EQ(decoded.pictures[0].width, 122);
  EXPECT_EQ(decoded.pictures[0].height, 82);
  const Decoded dot = Decode(Encode(MakeMp4(30), 1, [](int i) { return Clock(1, 1, i); }), "a.mp4");
  ASSERT_EQ(dot.pictures.size(), 1u);
}

TEST_F(Mp4, AllSortsOfRatesAreKept) {
  for (const double rate : {1.0, 15.0, 23.976, 29.97, 60.0, 1000.0}) {
    const Decoded decoded =
        Decode(Encode(MakeMp4(rate), 30, [](int i) { return Clock(64, 48, i); }), "a.mp4");
    ASSERT_EQ(decoded.pictures.size(), 30u) << rate;
    EXPECT_NEAR(decoded.times_s[29] * rate, 29, 0.02) << rate;
  }
}

TEST_F(Mp4, AFilmThatIsGivenUpLeavesNothing) {
  MakeMp4(30);
  MakeMp4(30)->Add(Clock(64, 48, 0));
}

TEST_F(Mp4, FilmsHaveOneSize) {
  for (const auto& make : {MakeGif, MakeMp4}) {
    const auto film = make(30);
    film->Add(Clock(64, 48, 0));
    EXPECT_THROW(film->Add(Clock(48, 64, 0)), Error);
    EXPECT_THROW(film->Add({}), Error);
  }
}

}  // namespace
}  // namespace trireme
