#include "trireme/base/state.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>

#include "trireme/base/state_sections.h"

namespace trireme {
namespace {

constexpr float kWeights[] = {1.5f, -0.0f, 3e-38f};

std::string SampleState() {
  StateWriter writer;
  writer.Put<float>("net/weights", kWeights);
  writer.PutValue<std::int64_t>("step", -7);
  writer.PutText("algo", "ppo");
  writer.Put<double>("empty", {});
  return writer.Encode();
}

std::string ErrorOf(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(State, RoundTrip) {
  const StateReader reader(SampleState());
  float weights[3];
  reader.Get<float>("net/weights", weights);
  EXPECT_EQ(std::memcmp(weights, kWeights, sizeof weights), 0);
  EXPECT_EQ(reader.GetValue<std::int64_t>("step"), -7);
  EXPECT_EQ(reader.GetText("algo"), "ppo");
  reader.Get<double>("empty", {});
  EXPECT_TRUE(reader.Has("empty"));
  EXPECT_FALSE(reader.Has("net"));
}

TEST(State, EncodingDoesNotDependOnTheOrderOfPut) {
  StateWriter a, b;
  a.PutText("x", "1");
  a.PutText("y", "2");
  b.PutText("y", "2");
  b.PutText("x", "1");
  EXPECT_EQ(a.Encode(), b.Encode());
}

TEST(State, EmptyStateIsValid) {
  EXPECT_EQ(StateWriter().Encode(), "");
  EXPECT_FALSE(StateReader("").Has("anything"));
}

TEST(State, TruncationIsRefusedOrLeavesSectionsMissing) {
  const std::string whole = SampleState();
  std::size_t refused = 0, shorter = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    try {
      const StateReader reader(std::string_view(whole).substr(0, size));
      // Sections are written in name order, so "step" is the last to survive.
      EXPECT_FALSE(reader.Has("step")) << "cut at byte " << size;
      ++shorter;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_EQ(shorter, 4u) << "only a cut between two of the four sections can be parsed";
  EXPECT_EQ(refused, whole.size() - 4);
}

TEST(State, AbsurdSectionSizeIsRefused) {
  std::string encoded = SampleState();
  encoded[7] = '\xff';
  EXPECT_EQ(ErrorOf([&] { StateReader reader(encoded); }), "the saved state ends in the middle of a section");
}

TEST(State, MissingSectionIsNamed) {
  const StateReader reader(SampleState());
  EXPECT_EQ(ErrorOf([&] { reader.GetText("env/state"); }), "the saved state has no section 'env/state'");
}

TEST(State, WrongSizeIsNamed) {
  const StateReader reader(SampleState());
  float two[2];
  EXPECT_TRUE(ErrorOf([&] {
                reader.Get<float>("net/weights", two);
              }).starts_with("section 'net/weights' holds 12 bytes where 8 are needed"));
  EXPECT_TRUE(
      ErrorOf([&] { reader.GetValue<std::int32_t>("step"); }).starts_with("section 'step' holds 8 bytes"));
}

TEST(StateDeathTest, SectionNamesAreUnique) {
  StateWriter writer;
  writer.PutText("x", "1");
  EXPECT_DEATH(writer.PutText("x", "2"), "is_new");
}

TEST(State, MergedBelowAPrefixAndReadBelowIt) {
  StateWriter all, part, other;
  part.PutValue("count", 3);
  other.PutValue("count", 4);
  all.PutValue("count", 2);
  all.Merge(std::move(part), "worker/0/");
  all.Merge(std::move(other), "worker/1/");
  const StateReader reader(all.Encode());
  EXPECT_EQ(reader.GetValue<int>("count"), 2);
  EXPECT_EQ(reader.Below("worker/0/").GetValue<int>("count"), 3);
  EXPECT_EQ(reader.Below("worker/").Below("1/").GetValue<int>("count"), 4);
  EXPECT_FALSE(reader.Below("worker/2/").Has("count"));
  EXPECT_THROW(reader.Below("worker/2/").GetValue<int>("count"), Error);
}

TEST(State, EncodedPartsMergeLikeOthers) {
  StateWriter all, part;
  part.PutText("name", "x");
  part.PutText("empty", "");
  all.PutText("name", "y");
  all.Merge(part.Encode(), "worker/0/");
  const StateReader reader(all.Encode());
  EXPECT_EQ(reader.GetText("name"), "y");
  EXPECT_EQ(reader.Below("worker/0/").GetText("name"), "x");
  EXPECT_EQ(reader.Below("worker/0/").GetText("empty"), "");
  EXPECT_EQ(reader.Encode(), all.Encode());
  const std::string encoded = part.Encode();
  EXPECT_THROW(StateWriter().Merge(std::string_view(encoded).substr(0, encoded.size() - 1)), Error);
}

TEST(State, SomeSectionsAreReadOfMany) {
  StateWriter all;
  all.PutText("shard/0", std::string(100, 'x'));
  all.PutText("params", "abc");
  all.PutText("empty", "");
  all.PutText("steps", "12");
  const std::string encoded = all.Encode();
  const auto pick = [](const std::string& text, const KeepSection& keep) {
    std::istringstream in("before" + text);
    in.seekg(6);
    return PickSections(in, text.size(), keep);
  };
  const StateReader some(pick(encoded, [](std::string_view name) { return !name.starts_with("shard/"); }));
  EXPECT_FALSE(some.Has("shard/0"));
  EXPECT_EQ(some.GetText("params"), "abc");
  EXPECT_EQ(some.GetText("empty"), "");
  EXPECT_EQ(some.GetText("steps"), "12");
  EXPECT_EQ(pick(encoded, KeepAll), encoded);
  EXPECT_EQ(pick(encoded, KeepNone), "");
  EXPECT_EQ(pick("", KeepAll), "");

  // Cut anywhere but between sections; and where a size says more than there is.
  StateWriter one;
  one.PutText("name", "value");
  const std::string whole = one.Encode();
  for (std::size_t size = 1; size < whole.size(); ++size) {
    EXPECT_THROW(pick(whole.substr(0, size), KeepAll), Error) << size;
    EXPECT_THROW(pick(whole.substr(0, size), KeepNone), Error) << size;
  }
  for (const std::size_t size_at : {std::size_t{0}, std::size_t{8 + 4}}) {
    std::string lying = whole;
    lying[size_at + 7] = '\x7f';
    EXPECT_THROW(pick(lying, KeepAll), Error);
  }
}

// Of a file that was changed, or of a peer.
TEST(State, ANameThatComesTwiceIsRefused) {
  StateWriter once;
  once.PutText("name", "value");
  const std::string twice = once.Encode() + once.Encode();
  EXPECT_THROW(StateReader{twice}, Error);
  EXPECT_THROW(StateWriter().Merge(twice), Error);
  EXPECT_THROW(once.Merge(once.Encode()), Error);
}

}  // namespace
}  // namespace trireme
