// Settings of every kind, for tests of how they are given and saved.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/config.h"

namespace trireme {

enum class Colour { kRed, kGreen };
inline constexpr EnumName<Colour> kColourNames[] = {{"red", Colour::kRed}, {"green", Colour::kGreen}};

struct Sample {
  bool flag = false;
  int epochs = 4;
  std::int64_t steps = 1'000'000;
  std::uint64_t seed = 1;
  double learning_rate = 3e-4;
  double gamma = 0.99;
  double offset = 0;
  std::vector<int> hidden = {64, 64};
  std::string name = "plain";
  std::string store = "local";
  Colour colour = Colour::kRed;

  void Fields(ConfigFields& field) {
    field("flag", flag, "a switch");
    field("epochs", epochs, "passes over each batch", AtLeast(1));
    field("steps", steps, "environment steps", Positive());
    field("seed", seed, "selects every random draw");
    field("learning_rate", learning_rate, "initial step size", Positive());
    field("gamma", gamma, "discount", UnitInterval());
    field("offset", offset, "any number");
    field("hidden", hidden, "units of each layer", Between(1, 4096));
    field("name", name, "any text");
    field("store", store, "where parameters live", OneOf{"local", "allreduce"});
    field("colour", colour, "red|green", kColourNames);
  }
};

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() { fields.Add(sample); }

  void Assign(std::string_view text) { fields.ApplyAssignment(text, "--set"); }
  std::string AssignError(std::string_view text) {
    const std::string before = fields.ToToml();
    try {
      Assign(text);
    } catch (const Error& error) {
      EXPECT_EQ(fields.ToToml(), before) << "a refused value must change nothing";
      return error.what();
    }
    return "accepted";
  }
  std::string TomlError(std::string_view text) {
    try {
      fields.ApplyToml(text, "x.toml");
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  Sample sample;
  ConfigFields fields;
};

}  // namespace trireme
