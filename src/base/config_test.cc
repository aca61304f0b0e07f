#include "trireme/base/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trireme/base/test_config.h"

namespace trireme {
namespace {

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
