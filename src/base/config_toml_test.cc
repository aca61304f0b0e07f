// Settings in files: read, written, and read back as they were.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trireme/base/test_config.h"

namespace trireme {
namespace {

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
  try {
    ReadTomlText("a = 1\nenv = 3", "env", "x.toml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "x.toml:2:7: env: expected a text in quotes");
  }
  EXPECT_THROW(ReadTomlText("env = ", "env", "x.toml"), Error);
}

}  // namespace
}  // namespace trireme
