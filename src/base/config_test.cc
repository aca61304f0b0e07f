#include "trireme/base/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trireme {
namespace {

enum class Colour { kRed, kGreen };
constexpr EnumName<Colour> kColourNames[] = {{"red", Colour::kRed}, {"green", Colour::kGreen}};

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

TEST_F(ConfigTest, AssignmentsReachEveryType) {
  Assign("flag=true");
  Assign("epochs=7");
  Assign("steps=5_000_000_000");
  Assign("seed=18446744073709551615");
  Assign("learning_rate=2.5e-4");
  Assign("gamma=1");
  Assign("hidden=[32, 16, 8]");
  Assign("name=a = \"b\"");
  Assign("store=allreduce");
  Assign(" colour = green ");
  EXPECT_TRUE(sample.flag);
  EXPECT_EQ(sample.epochs, 7);
  EXPECT_EQ(sample.steps, 5'000'000'000);
  EXPECT_EQ(sample.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(sample.learning_rate, 2.5e-4);
  EXPECT_EQ(sample.gamma, 1.0);
  EXPECT_EQ(sample.hidden, (std::vector{32, 16, 8}));
  EXPECT_EQ(sample.name, "a = \"b\"");
  EXPECT_EQ(sample.store, "allreduce");
  EXPECT_EQ(sample.colour, Colour::kGreen);
}

TEST_F(ConfigTest, IntegersAcceptExactlyIntegralForms) {
  for (const char* text :
       {"1500", "1.5e3", "1_500", "+1500", "1500.0", "15e2", "15E+2", "150000e-2", " 1500 "}) {
    sample.epochs = 0;
    Assign(std::string("epochs=") + text);
    EXPECT_EQ(sample.epochs, 1500) << text;
  }
  for (const char* text : {"",
                           " ",
                           "1.5",
                           "1e-1",
                           "1e",
                           "e3",
                           "1e+",
                           "1e+-2",
                           "0x10",
                           "1__0",
                           "_1",
                           "1_",
                           "1500x",
                           "--3",
                           "+-3",
                           "1 2",
                           "1.2.3",
                           ".",
                           "nan",
                           "inf",
                           "true",
                           "[1]",
                           "1.00000000000000000001"}) {
    EXPECT_EQ(AssignError(std::string("epochs=") + text),
              fmt::format("--set epochs={}: expected a whole number at least 1", text));
  }
}

TEST_F(ConfigTest, HugeIntegersAreRefusedInsteadOfWrapping) {
  Assign("epochs=2147483647");
  EXPECT_EQ(sample.epochs, 2147483647);
  EXPECT_EQ(AssignError("epochs=2147483648"),
            "--set epochs=2147483648: expected a whole number of at most 2147483647");
  EXPECT_EQ(AssignError("epochs=4294967300"),
            "--set epochs=4294967300: expected a whole number of at most 2147483647");
  EXPECT_EQ(AssignError("steps=9223372036854775808"),
            "--set steps=9223372036854775808: expected a whole number of at most 9223372036854775807");
  EXPECT_EQ(AssignError("steps=-9223372036854775809"),
            "--set steps=-9223372036854775809: expected a whole number of at least -9223372036854775808");
  EXPECT_EQ(AssignError("seed=1e20"),
            "--set seed=1e20: expected a whole number of at most 18446744073709551615");
  EXPECT_EQ(AssignError("seed=-1"), "--set seed=-1: expected a whole number at least 0");
  EXPECT_NE(AssignError("seed=1e99999999999"), "accepted");
}

TEST_F(ConfigTest, RangesAreChecked) {
  EXPECT_EQ(AssignError("epochs=0"), "--set epochs=0: expected a whole number at least 1");
  EXPECT_EQ(AssignError("epochs=-3"), "--set epochs=-3: expected a whole number at least 1");
  EXPECT_EQ(AssignError("steps=0"), "--set steps=0: expected a whole number above 0");
  EXPECT_EQ(AssignError("learning_rate=0"), "--set learning_rate=0: expected a number above 0");
  EXPECT_EQ(AssignError("learning_rate=-0.1"), "--set learning_rate=-0.1: expected a number above 0");
  EXPECT_EQ(AssignError("gamma=1.0001"), "--set gamma=1.0001: expected a number from 0 to 1");
  EXPECT_EQ(AssignError("gamma=-1e-9"), "--set gamma=-1e-9: expected a number from 0 to 1");
  Assign("gamma=0");
  EXPECT_EQ(sample.gamma, 0.0);
}

TEST(ConfigRange, ExcludedAndOneSidedBounds) {
  double decay = 0.5, low = -1;
  ConfigFields fields;
  fields("decay", decay, "decay rate", BelowOne());
  fields("low", low, "not above zero", AtMost(0));
  EXPECT_THROW(fields.ApplyAssignment("decay=1", "--set"), Error);
  fields.ApplyAssignment("decay=0", "--set");
  EXPECT_THROW(fields.ApplyAssignment("low=0.5", "--set"), Error);
  fields.ApplyAssignment("low=0", "--set");
  EXPECT_EQ(fields.fields()[0].allowed, "from 0 to 1 (excluded)");
  EXPECT_EQ(fields.fields()[1].allowed, "at most 0");
}

TEST_F(ConfigTest, DoublesRefuseWhatIsNotAFiniteNumber) {
  for (const char* text : {"", "abc", "nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e999", "1.0x", "1,5",
                           "0x1p3", "1e-3e", "- 1"}) {
    EXPECT_EQ(AssignError(std::string("offset=") + text),
              fmt::format("--set offset={}: expected a number", text));
  }
}

TEST_F(ConfigTest, Lists) {
  for (const char* text : {"64,32", "[64,32]", "[ 64 , 32 ]", " 64, 32 ", "6.4e1,32"}) {
    sample.hidden.clear();
    Assign(std::string("hidden=") + text);
    EXPECT_EQ(sample.hidden, (std::vector{64, 32})) << text;
  }
  Assign("hidden=[]");
  EXPECT_TRUE(sample.hidden.empty());
  Assign("hidden=8");
  EXPECT_EQ(sample.hidden, (std::vector{8}));
  for (const char* text :
       {"", "[", "]", "[64", "64]", "64,", "[64,]", ",", "64,,32", "[[64]]", "64;32", "a,b"}) {
    EXPECT_TRUE(AssignError(std::string("hidden=") + text)
                    .starts_with(
                        fmt::format("--set hidden={}: expected a list of whole numbers like [64, 64]", text)))
        << text;
  }
  EXPECT_EQ(AssignError("hidden=64,0"),
            "--set hidden=64,0: expected a list of whole numbers like [64, 64], each a whole number from 1 "
            "to 4096");
  EXPECT_NE(AssignError("hidden=64,1e12"), "accepted");
}

TEST_F(ConfigTest, BoolsTextAndChoices) {
  EXPECT_EQ(AssignError("flag=yes"), "--set flag=yes: expected true or false");
  EXPECT_EQ(AssignError("flag="), "--set flag=: expected true or false");
  EXPECT_EQ(AssignError("flag=True"), "--set flag=True: expected true or false");
  EXPECT_EQ(AssignError("colour=blue"), "--set colour=blue: expected one of red, green");
  EXPECT_EQ(AssignError("colour="), "--set colour=: expected one of red, green");
  EXPECT_EQ(AssignError("store=locale"), "--set store=locale: expected one of local, allreduce");
  EXPECT_NE(AssignError("name=\xff"), "accepted") << "invalid UTF-8 cannot be saved";
  Assign("name=");
  EXPECT_EQ(sample.name, "");
}

TEST_F(ConfigTest, MalformedAndUnknownAssignments) {
  EXPECT_EQ(AssignError("lerning_rate=1"),
            "--set lerning_rate=1: unknown setting 'lerning_rate'. Did you mean 'learning_rate'?");
  EXPECT_EQ(AssignError("epochs"), "--set epochs: expected key=value");
  EXPECT_EQ(AssignError("=3"), "--set =3: unknown setting ''.");
  EXPECT_EQ(AssignError("qqqqqqqqqq=3"), "--set qqqqqqqqqq=3: unknown setting 'qqqqqqqqqq'.");
}

TEST_F(ConfigTest, SetNamesTheFlag) {
  fields.Set("seed", "7", "--seed");
  EXPECT_EQ(sample.seed, 7u);
  EXPECT_EQ(fields.Get("seed"), "7");
  try {
    fields.Set("steps", "many", "--steps");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--steps: expected a whole number above 0, not 'many'");
  }
}

TEST_F(ConfigTest, TomlReachesEveryType) {
  fields.ApplyToml(R"(
# a comment
flag = true
epochs = 1e1
steps = 2_000
seed = "18446744073709551615"
learning_rate = 1
gamma = 0.5
offset = -1.5e-3
hidden = [ 32, 16 ]
name = 'single \ quoted'
store = "allreduce"
colour = "green"
)",
                   "x.toml");
  EXPECT_TRUE(sample.flag);
  EXPECT_EQ(sample.epochs, 10);
  EXPECT_EQ(sample.steps, 2000);
  EXPECT_EQ(sample.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(sample.learning_rate, 1.0);
  EXPECT_EQ(sample.gamma, 0.5);
  EXPECT_EQ(sample.offset, -1.5e-3);
  EXPECT_EQ(sample.hidden, (std::vector{32, 16}));
  EXPECT_EQ(sample.name, "single \\ quoted");
  EXPECT_EQ(sample.store, "allreduce");
  EXPECT_EQ(sample.colour, Colour::kGreen);
}

TEST_F(ConfigTest, EmptyTomlChangesNothing) {
  const std::string before = fields.ToToml();
  fields.ApplyToml("", "x.toml");
  fields.ApplyToml("# only a comment\r\n\n", "x.toml");
  EXPECT_EQ(fields.ToToml(), before);
}

TEST_F(ConfigTest, TomlSyntaxErrorsShowLineAndColumn) {
  EXPECT_TRUE(TomlError("flag = true\nepochs = = 3\n").starts_with("x.toml:2:10: "))
      << TomlError("epochs = = 3");
  EXPECT_TRUE(TomlError("\n\nname = \"open\n").starts_with("x.toml:3:"));
  EXPECT_TRUE(TomlError("hidden = [1, 2").starts_with("x.toml:1:"));
  EXPECT_EQ(TomlError("epochs").find('\n'), std::string::npos);
}

TEST_F(ConfigTest, TomlDuplicateKeysAreRefused) {
  const std::string error = TomlError("epochs = 1\nepochs = 2\n");
  EXPECT_TRUE(error.starts_with("x.toml:2:")) << error;
  EXPECT_NE(error.find("epochs"), std::string::npos) << error;
}

TEST_F(ConfigTest, TomlUnknownKeysAreRefusedWithASuggestion) {
  EXPECT_EQ(TomlError("epochs = 2\n\n\nlerning_rate = 1\n"),
            "x.toml:4:1: unknown setting 'lerning_rate'. Did you mean 'learning_rate'?");
  EXPECT_EQ(TomlError("[ppo]\nepochs = 2\n"), "x.toml:1:2: unknown setting 'ppo'.");
}

TEST_F(ConfigTest, TomlReportsTheFirstMistakeOfTheFile) {
  EXPECT_TRUE(TomlError("store = 1\nepochs = true\n").starts_with("x.toml:1:9: store: "));
}

TEST_F(ConfigTest, TomlWrongTypesAndValuesNamePlaceKeyExpectedAndGiven) {
  EXPECT_EQ(TomlError("\nlearning_rate = \"0.1\""),
            "x.toml:2:17: learning_rate: expected a number above 0, not \"0.1\"");
  EXPECT_EQ(TomlError("epochs = true"), "x.toml:1:10: epochs: expected a whole number at least 1, not true");
  EXPECT_EQ(TomlError("epochs = 2.5"), "x.toml:1:10: epochs: expected a whole number at least 1, not 2.5");
  EXPECT_EQ(TomlError("epochs = 0"), "x.toml:1:10: epochs: expected a whole number at least 1, not 0");
  EXPECT_EQ(TomlError("epochs = 1e12"),
            "x.toml:1:10: epochs: expected a whole number of at most 2147483647, not 1000000000000");
  EXPECT_EQ(TomlError("flag = 1"), "x.toml:1:8: flag: expected true or false, not 1");
  EXPECT_EQ(TomlError("name = 3"), "x.toml:1:8: name: expected text in quotes, not 3");
  EXPECT_EQ(TomlError("name = 1979-05-27"), "x.toml:1:8: name: expected text in quotes, not a date or time");
  EXPECT_EQ(TomlError("colour = \"blue\""), "x.toml:1:10: colour: expected one of red, green, not \"blue\"");
  EXPECT_EQ(TomlError("hidden = 64"),
            "x.toml:1:10: hidden: expected a list of whole numbers like [64, 64], not 64");
  EXPECT_EQ(TomlError("hidden = [64, \"a\"]"),
            "x.toml:1:10: hidden: expected a list of whole numbers like [64, 64], not [64, \"a\"]");
  EXPECT_EQ(TomlError("gamma = nan"), "x.toml:1:9: gamma: expected a number from 0 to 1, not nan");
  EXPECT_EQ(TomlError("offset = inf"), "x.toml:1:10: offset: expected a number, not inf");
  EXPECT_EQ(TomlError("[epochs]\na = 1"),
            "x.toml:1:1: epochs: expected a whole number at least 1, not a table");
  EXPECT_EQ(TomlError("epochs = \"4\""),
            "x.toml:1:10: epochs: expected a whole number at least 1, not \"4\"");
}

TEST_F(ConfigTest, ToTomlRoundTripsExactly) {
  sample.flag = true;
  sample.epochs = std::numeric_limits<int>::max();
  sample.steps = std::numeric_limits<std::int64_t>::max();
  sample.seed = std::numeric_limits<std::uint64_t>::max();
  sample.learning_rate = std::numeric_limits<double>::denorm_min();
  sample.gamma = std::nextafter(1.0, 0.0);
  sample.offset = -0.0;
  sample.hidden = {};
  sample.name = "quote \" backslash \\ tab \t newline \n bell \a delete \x7f caf\xc3\xa9";
  sample.colour = Colour::kGreen;

  Sample copy;
  ConfigFields copy_fields;
  copy_fields.Add(copy);
  copy_fields.ApplyToml(fields.ToToml(), "saved.toml");
  EXPECT_EQ(copy.flag, sample.flag);
  EXPECT_EQ(copy.epochs, sample.epochs);
  EXPECT_EQ(copy.steps, sample.steps);
  EXPECT_EQ(copy.seed, sample.seed);
  EXPECT_EQ(copy.learning_rate, sample.learning_rate);
  EXPECT_EQ(copy.gamma, sample.gamma);
  EXPECT_TRUE(copy.offset == 0 && std::signbit(copy.offset));
  EXPECT_EQ(copy.hidden, sample.hidden);
  EXPECT_EQ(copy.name, sample.name);
  EXPECT_EQ(copy.store, sample.store);
  EXPECT_EQ(copy.colour, sample.colour);
  EXPECT_EQ(copy_fields.ToToml(), fields.ToToml());
}

TEST_F(ConfigTest, DoublesRoundTripOverTheirWholeRange) {
  for (const double value :
       {1.0 / 3, 1e22, 1e23, 123456789012345680.0, 1e15, 1e16, 5e-324, 1.7976931348623157e308}) {
    sample.offset = value;
    const std::string text = fields.ToToml();
    sample.offset = 0;
    fields.ApplyToml(text, "saved.toml");
    EXPECT_EQ(sample.offset, value) << text;
  }
}

TEST_F(ConfigTest, ToTomlCarriesTheDocs) {
  const std::string text = fields.ToToml();
  EXPECT_NE(text.find("# passes over each batch (at least 1)\nepochs = 4\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# initial step size (above 0)\nlearning_rate = 0.0003\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# red|green (one of red, green)\ncolour = \"red\"\n"), std::string::npos) << text;
}

TEST(ConfigOutput, HelpIsAnAlignedTableOfDefaults) {
  int epochs = 4;
  double rate = 1;
  ConfigFields fields;
  fields("epochs", epochs, "passes", AtLeast(1));
  fields("learning_rate", rate, "step size");
  fields.ApplyAssignment("epochs=9", "--set");
  EXPECT_EQ(fields.Help(),
            "  epochs         int    4    passes (at least 1)\n"
            "  learning_rate  float  1.0  step size\n");
  EXPECT_EQ(fields.fields()[0].default_text, "4");
  EXPECT_EQ(fields.Get("epochs"), "9");
}

TEST_F(ConfigTest, Markdown) {
  const std::string text = fields.ToMarkdown();
  EXPECT_TRUE(text.starts_with("| setting | type | default | meaning |\n|---|---|---|---|\n")) << text;
  EXPECT_NE(text.find("| `colour` | choice | `\"red\"` | red\\|green (one of red, green) |\n"),
            std::string::npos)
      << text;
}

TEST_F(ConfigTest, StructsShareOneNamespaceInOrder) {
  struct Other {
    int workers = 1;
    void Fields(ConfigFields& field) { field("workers", workers, "threads", AtLeast(1)); }
  } other;
  fields.Add(other);
  Assign("workers=2");
  EXPECT_EQ(other.workers, 2);
  EXPECT_TRUE(fields.Has("workers"));
  EXPECT_FALSE(fields.Has("worker"));
  EXPECT_EQ(fields.Names().front(), "flag");
  EXPECT_EQ(fields.Names().back(), "workers");
}

// Whoever wrote them: those of a plug-in must not end the program.
TEST_F(ConfigTest, FieldsThatCannotBeAreRefused) {
  int number = 0;
  const auto refusal = [&](std::string_view name, Range range = {}) -> std::string {
    try {
      fields(name, number, "", range);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string before = fields.ToToml();
  EXPECT_EQ(refusal("epochs"), "there is a setting 'epochs' already");
  EXPECT_EQ(refusal("number", AtLeast(1)), "number: the default 0 is not a whole number at least 1");
  for (const char* name : {"", "bad name", "Wind", "a.b", "über"}) {
    EXPECT_EQ(refusal(name),
              fmt::format("'{}' is no name for a setting: it needs letters from a to z, digits and _", name));
  }
  EXPECT_EQ(fields.ToToml(), before);
}

using ConfigDeathTest = ConfigTest;
TEST_F(ConfigDeathTest, ProgrammingMistakesAbort) { EXPECT_DEATH(fields.Get("missing"), "Has"); }

TEST(ConfigKinds, ANumberMayBeAbsent) {
  std::optional<double> value;
  ConfigFields fields;
  fields("target", value, "return to reach", "auto");
  EXPECT_EQ(fields.ToToml(), "# return to reach\ntarget = \"auto\"\n");
  for (const char* text : {"target = -2.5", "target = 3", "target = \"auto\""}) {
    fields.ApplyToml(text, "x.toml");
    const std::optional<double> read = value;
    const std::string saved = fields.ToToml();
    value = 77;
    fields.ApplyToml(saved, "saved");
    EXPECT_EQ(value, read) << text;
  }
  EXPECT_FALSE(value.has_value());
  fields.ApplyAssignment("target=4", "--set");
  EXPECT_EQ(value, 4.0);
  fields.ApplyAssignment("target= auto", "--set");
  EXPECT_FALSE(value.has_value());
  for (const char* bad : {"target=", "target=nan", "target=\"auto\"", "target=none"}) {
    EXPECT_THROW(fields.ApplyAssignment(bad, "--set"), Error) << bad;
  }
  for (const char* bad : {"target = true", "target = \"many\"", "target = [1]"}) {
    try {
      fields.ApplyToml(bad, "x.toml");
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("a number or auto"), std::string::npos) << error.what();
    }
  }
}

TEST(ConfigKinds, AListOfTextsIsReadBackAsItWas) {
  std::vector<std::string> value = {"default"};
  ConfigFields fields;
  fields("args", value, "arguments");
  EXPECT_EQ(fields.fields()[0].default_text, "[\"default\"]");
  const std::vector<std::string> strange = {"",     "a, b", "\"quoted\"", "[x]", "line\nbreak", "back\\slash",
                                            "Grüße"};
  value = strange;
  const std::string saved = fields.ToToml();
  value.clear();
  fields.ApplyToml(saved, "saved");
  EXPECT_EQ(value, strange);
  fields.ApplyAssignment("args=[\"a=1\", 'b=2']", "--set");
  EXPECT_EQ(value, (std::vector<std::string>{"a=1", "b=2"}));
  fields.ApplyAssignment("args=[]", "--set");
  EXPECT_TRUE(value.empty());
  const std::string deep = "args=" + std::string(100'000, '[');
  for (const std::string& bad : {std::string("args="), std::string("args=a"), std::string("args=[1]"),
                                 std::string("args=[\"a\"]\ny = 1"), deep}) {
    EXPECT_THROW(fields.ApplyAssignment(bad, "--set"), Error) << bad.substr(0, 20);
  }
  EXPECT_THROW(fields.ApplyToml("args = [1]", "x.toml"), Error);
  EXPECT_THROW(fields.ApplyToml("args = \"a\"", "x.toml"), Error);
  EXPECT_TRUE(value.empty());
}

TEST(ReadTomlText, ReadsOneKeyAndIgnoresTheRest) {
  EXPECT_EQ(ReadTomlText("other = 3\nenv = \"CartPole-v1\"", "env", "x.toml"), "CartPole-v1");
  EXPECT_EQ(ReadTomlText("other = 3", "env", "x.toml"), "");
  EXPECT_EQ(ReadTomlText("env = 3", "env", "x.toml"), "");
  EXPECT_THROW(ReadTomlText("env = ", "env", "x.toml"), Error);
}

TEST(ConfigFields, APrefixKeepsNamesApart) {
  struct Limits {
    int steps = 5;
    void Fields(ConfigFields& field) { field("steps", steps, "how many", AtLeast(1)); }
  };
  Limits own, other;
  ConfigFields fields;
  fields.Add(own);
  fields.Add(other, "env_");
  Limits third;
  fields.Add(third, "third_");
  EXPECT_EQ(fields.Names(), (std::vector<std::string>{"steps", "env_steps", "third_steps"}));
  fields.ApplyAssignment("env_steps=7", "--set");
  EXPECT_EQ(own.steps, 5);
  EXPECT_EQ(other.steps, 7);
  try {
    fields.ApplyAssignment("env_step=7", "--set");
    FAIL() << "took an unknown name";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'env_steps'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trireme
