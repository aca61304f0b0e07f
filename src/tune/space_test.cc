#include "trireme/tune/space.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "trireme/algo/algorithm.h"
#include "trireme/train/run_config.h"
#include "trireme/tune/space_file.h"
#include "trireme/tune/test_functions.h"

namespace trireme {
namespace {

using testing::ChoiceOf;
using testing::Real;
using testing::Whole;
using Kind = Search::Kind;

enum class Colour { kRed, kGreen, kBlue };
constexpr EnumName<Colour> kColours[] = {
    {"red", Colour::kRed}, {"green", Colour::kGreen}, {"blue", Colour::kBlue}};

struct Toy {
  double rate = 0.01, share = 0.5, decay = 0.99, free = 1;
  int epochs = 4, batch = 64;
  bool special = false;
  Colour colour = Colour::kRed;
  std::vector<int> hidden = {32, 32};
  std::int64_t steps = 100;

  void Fields(ConfigFields& field) {
    field("rate", rate, "step size", Positive()).Tune(Search::Log(1e-4, 1));
    field("share", share, "only where special", UnitInterval())
        .Tune(Search::Linear(0, 1).When("special", {"true"}));
    field("decay", decay, "decay", BelowOne()).Tune(Search::NearOne(0.9, 0.999));
    field("free", free, "not searched");
    field("epochs", epochs, "passes", Between(1, 100)).Tune(Search::Linear(1, 8));
    field("batch", batch, "samples", Between(1, 4096)).Tune(Search::PowersOfTwo(16, 256));
    field("special", special, "a switch").Tune(Search::TrueOrFalse());
    field("colour", colour, "a choice", kColours).Tune(Search::Choices({"red", "blue"}));
    field("hidden", hidden, "layers", Between(1, 512)).Tune(Search::Layers(1, 3, 16, 64));
    field("steps", steps, "how long", AtLeast(1));
  }
};

struct ToyFields {
  ToyFields() { fields.Add(toy); }
  Toy toy;
  ConfigFields fields;
  Space Make(std::string_view file = "", std::vector<std::string> held = {}) {
    return MakeSpace(fields, ReadSpaceFile(file, "space.toml"), held);
  }
  std::vector<std::string> Names(std::string_view file = "", std::vector<std::string> held = {}) {
    const Space space = Make(file, std::move(held));
    std::vector<std::string> names;
    for (const Parameter& parameter : space.parameters()) names.push_back(parameter.name);
    return names;
  }
};

const Parameter& Find(const Space& space, const std::string& name) {
  return *std::ranges::find(space.parameters(), name, &Parameter::name);
}

TEST(Space, PlacesAndValuesAreInverse) {
  const std::vector<Parameter> parameters = {Real("a", -5, 10),
                                             Real("b", 1e-5, 1, Kind::kLog),
                                             Real("c", 0.9, 0.999, Kind::kNearOne),
                                             Whole("d", 1, 12),
                                             Whole("e", 3, 3000, Kind::kLog),
                                             Whole("f", 8, 512, Kind::kPowersOfTwo),
                                             ChoiceOf("g", {"x", "y", "z"})};
  for (const Parameter& parameter : parameters) {
    for (double place = 0; place <= 1; place += 1.0 / 64) {
      const double value = parameter.FromUnit(place);
      EXPECT_EQ(parameter.FromUnit(parameter.ToUnit(value)), value) << parameter.name << " at " << place;
      if (!parameter.categorical()) {
        EXPECT_GE(value, parameter.low) << parameter.name;
        EXPECT_LE(value, parameter.high) << parameter.name;
      }
    }
  }
}

TEST(Space, ScalesSpreadValuesAsTheySay) {
  EXPECT_NEAR(Real("x", 1e-4, 1, Kind::kLog).FromUnit(0.5), 1e-2, 1e-8);
  EXPECT_NEAR(Real("x", 0.9, 0.999, Kind::kNearOne).FromUnit(0.5), 0.99, 1e-8);
  EXPECT_EQ(Real("x", -1, 3).FromUnit(0.25), 0);
  EXPECT_EQ(Whole("x", 16, 256, Kind::kPowersOfTwo).Levels(), 5);
  EXPECT_EQ(Whole("x", 16, 256, Kind::kPowersOfTwo).FromUnit(0.5), 64);
  // Every whole number has the same share.
  std::map<double, int> counts;
  for (int i = 0; i < 400; ++i) ++counts[Whole("x", 1, 4).FromUnit((i + 0.5) / 400)];
  EXPECT_EQ(counts, (std::map<double, int>{{1, 100}, {2, 100}, {3, 100}, {4, 100}}));
}

TEST(Space, ComesFromTheFieldList) {
  ToyFields toy;
  const std::vector<std::string> expected = {"special", "rate",   "share",         "decay",       "epochs",
                                             "batch",   "colour", "hidden_layers", "hidden_width"};
  EXPECT_EQ(toy.Names(), expected);
  const Space space = toy.Make();
  EXPECT_EQ(Find(space, "rate").RangeText(), "log, 0.0001 to 1");
  EXPECT_EQ(Find(space, "epochs").RangeText(), "linear whole, 1 to 8");
  EXPECT_EQ(Find(space, "colour").RangeText(), "one of red, blue");
  EXPECT_EQ(toy.toy.epochs, 4) << "trying the ends of a range leaves the settings as they were";
  EXPECT_EQ(toy.toy.hidden, (std::vector<int>{32, 32}));
}

TEST(Space, WhatDoesNotCountIsLeftAlone) {
  ToyFields toy;
  const Space space = toy.Make();
  const std::size_t share = 2;
  ASSERT_EQ(space.parameters()[share].name, "share");
  std::vector<double> places(space.size(), 0.9);
  places[0] = 0.1;  // special = false
  EXPECT_TRUE(std::isnan(space.At(places)[share]));
  places[0] = 0.9;
  const Point point = space.At(places);
  EXPECT_FALSE(std::isnan(point[share]));
  space.Apply(point, toy.fields);
  EXPECT_TRUE(toy.toy.special);
  EXPECT_NEAR(toy.toy.share, 0.9, 1e-9);
  EXPECT_EQ(toy.toy.batch, 256);
  EXPECT_EQ(toy.toy.colour, Colour::kBlue);
  EXPECT_EQ(toy.toy.hidden, (std::vector<int>{64, 64, 64}));
}

TEST(Space, TheNearestPointToTheSettingsIsTheSettings) {
  ToyFields toy;
  const Space space = toy.Make();
  const Point point = space.Nearest(toy.fields);
  EXPECT_EQ(
      space.Describe(point),
      "special = false, rate = 0.01, decay = 0.99, epochs = 4, batch = 64, colour = red, hidden_layers = 2, "
      "hidden_width = 32");
  space.Apply(point, toy.fields);
  EXPECT_EQ(toy.toy.hidden, (std::vector<int>{32, 32}));
  EXPECT_EQ(toy.toy.rate, 0.01);
  toy.toy.rate = 50;  // outside
  EXPECT_EQ(space.Nearest(toy.fields)[1], 1);
}

TEST(Space, AFileNarrowsWidensAndAdds) {
  ToyFields toy;
  const Space space = toy.Make(R"(
    leave = ["batch"]
    rate = {high = 0.1}
    decay = 0.95
    epochs = {low = 2, high = 50, scale = "log"}
    free = {low = -1, high = 1}
    colour = {choices = ["red", "green"]}
    hidden = {width = [32, 256]}
    share = {low = 0.2, high = 0.4, when = "colour = green"}
  )");
  EXPECT_EQ(toy.toy.decay, 0.95);
  std::set<std::string> names;
  for (const Parameter& parameter : space.parameters()) names.insert(parameter.name);
  EXPECT_EQ(names, (std::set<std::string>{"rate", "share", "free", "epochs", "special", "colour",
                                          "hidden_layers", "hidden_width"}));
  EXPECT_EQ(Find(space, "rate").RangeText(), "log, 0.0001 to 0.1");
  EXPECT_EQ(Find(space, "epochs").RangeText(), "log whole, 2 to 50");
  EXPECT_EQ(Find(space, "free").RangeText(), "linear, -1 to 1");
  EXPECT_EQ(Find(space, "hidden_width").RangeText(), "powers_of_two, 32 to 256");
  EXPECT_EQ(Find(space, "hidden_layers").high, 3);
  EXPECT_EQ(space.parameters()[static_cast<std::size_t>(Find(space, "share").parent)].name, "colour");
  EXPECT_EQ(Find(space, "share").parent_values, (std::vector<int>{1}));
}

TEST(Space, OnlyAndHeldSettingsLeaveOthersOut) {
  EXPECT_EQ(ToyFields().Names("only = [\"rate\", \"epochs\"]"), (std::vector<std::string>{"rate", "epochs"}));
  EXPECT_EQ(ToyFields().Names("only = [\"rate\"]\nfree = {low = 0, high = 1}"),
            (std::vector<std::string>{"rate", "free"}));
  // A condition on what is not searched is decided by its value.
  ToyFields held;
  held.toy.special = true;
  EXPECT_EQ(held.Names("only = [\"share\", \"rate\"]", {"special"}),
            (std::vector<std::string>{"rate", "share"}));
  EXPECT_EQ(ToyFields().Names("only = [\"share\", \"rate\"]", {"special"}),
            (std::vector<std::string>{"rate"}));
}

TEST(Space, WhatCannotBeSearchedIsNamed) {
  const auto refused = [](std::string_view file, std::string_view part, std::vector<std::string> held = {}) {
    try {
      ToyFields().Make(file, std::move(held));
      ADD_FAILURE() << file << " was taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << file << ": " << error.what();
    }
  };
  refused("rat = {low = 1, high = 2}", "Did you mean 'rate'?");
  refused("rate = {low = 1, high = 0.1}", "upside down");
  refused("rate = {low = 0.5, high = 0.5}", "holds one value");
  refused("rate = {low = 0, high = 0.5}", "above 0");
  refused("rate = {low = inf, high = inf}", "endless");
  refused("decay = {high = 1.0}", "below 1");
  refused("batch = {high = 100}", "powers of two");
  refused("epochs = {low = 1.5}", "whole numbers");
  refused("epochs = {high = 1000}", "from 1 to 100");
  refused("rate = {low = 0.1, high = 0.5}\nrate = {low = 0.1, high = 0.5}", "space.toml:2");
  refused("rate = {low = 0.1}", "given a value on the command line", {"rate"});
  refused("leave = [\"rate\"]\nrate = {low = 0.1}", "say one of them");
  refused("steps = {low = 1, high = 10}", "must be the same in all trials");
  refused("only = []", "empty");
  refused("only = [\"free\"]", "no range of its own");
  refused("free = {}", "say low and high");
  refused("free = {low = 1}", "say low and high");
  refused("colour = {choices = [\"red\"]}", "one choice is none");
  refused("colour = {choices = [\"red\", \"red\"]}", "twice");
  refused("colour = {choices = [\"red\", \"pink\"]}", "one of red, green, blue");
  refused("colour = {low = 1, high = 2}", "searched by choices");
  refused("rate = {scale = \"cubic\"}", "expected linear, log");
  refused("rate = {lowest = 1}", "not lowest");
  refused("rate = {low = \"1\"}", "expected a number");
  refused("hidden = {layers = [3, 1]}", "upside down");
  refused("share = {low = 0, high = 1, when = \"epochs = 3\"}", "searched by choices");
  refused("share = {low = 0, high = 1, when = \"colour = pink\"}", "never pink");
  refused("share = {low = 0, high = 1, when = \"colour\"}", "\"setting = value\"");
  refused("rate = ", "space.toml:1");
  refused(
      "special = "
      "true\nrate=1.0\ndecay=0.5\nepochs=1\nbatch=16\ncolour=\"red\"\nhidden=[1]\nleave=[\"share\"]",
      "nothing to search");
}

// The ranges beside the fields are good ones, and every algorithm has some.
TEST(Space, EveryAlgorithmHasOne) {
  for (const AlgorithmEntry& algorithm : AllAlgorithms()) {
    RunSettings settings(algorithm.discrete ? "CartPole-v1" : "Pendulum-v1", algorithm.name);
    const Space space = MakeSpace(settings.fields, {}, {});
    EXPECT_GE(space.size(), 8U) << algorithm.name;
    for (int i = 0; i < 50; ++i) {
      RandomStream draws(1, Purpose::kTest, 0, static_cast<std::uint64_t>(i));
      std::vector<double> places(space.size());
      for (double& place : places) place = draws.NextUniform();
      EXPECT_NO_THROW(space.Apply(space.At(places), settings.fields)) << algorithm.name;
    }
    EXPECT_NE(space.ToText().find("learning_rate"), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme
