#include "trireme/env/args.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

EnvArgValue ValueOf(const std::string& text) { return ParseEnvArg("key=" + text, "--env-arg").value; }

std::string Refusal(const std::vector<std::string>& assignments) {
  try {
    ParseEnvArgs(assignments, "--env-arg");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(EnvArgs, ValuesSayTheirType) {
  EXPECT_EQ(ValueOf("null"), EnvArgValue());
  EXPECT_EQ(ValueOf("None"), EnvArgValue());
  EXPECT_EQ(ValueOf("true"), EnvArgValue(true));
  EXPECT_EQ(ValueOf("False"), EnvArgValue(false));
  EXPECT_EQ(ValueOf("3"), EnvArgValue(std::int64_t{3}));
  EXPECT_EQ(ValueOf(" -1_000 "), EnvArgValue(std::int64_t{-1000}));
  EXPECT_EQ(ValueOf("-9223372036854775808"), EnvArgValue(std::numeric_limits<std::int64_t>::min()));
  EXPECT_EQ(ValueOf("3.0"), EnvArgValue(3.0));
  EXPECT_EQ(ValueOf("-1e-3"), EnvArgValue(-1e-3));
  for (const char* text : {"", "rgb_array", "4x4", "007", "1.2.3", "1e999", "-", "+", ".5", "a=b", " padded ",
                           "\"open", "\"", "nan", "[1, 2]", "Grüße"}) {
    EXPECT_EQ(ValueOf(text), EnvArgValue(std::string(text)));
  }
  EXPECT_EQ(ValueOf("\"3\""), EnvArgValue(std::string("3")));
  EXPECT_EQ(ValueOf("'true'"), EnvArgValue(std::string("true")));
  EXPECT_EQ(ValueOf("\"\""), EnvArgValue(std::string()));
}

TEST(EnvArgs, KeysAreAnyText) {
  for (const char* key : {"gravity", "Wind-Power", "a.b", "über", "two words"}) {
    EXPECT_EQ(ParseEnvArg(std::string(" ") + key + " =1", "--env-arg").key, key);
  }
}

TEST(EnvArgs, AreReadBackAsTheyWere) {
  const std::vector<EnvArgValue> values = {{},
                                           true,
                                           std::int64_t{-5},
                                           3.0,
                                           1e300,
                                           0.1,
                                           std::string("text"),
                                           std::string("3"),
                                           std::string(""),
                                           std::string("null"),
                                           std::string("\"quoted\""),
                                           std::string(" padded"),
                                           std::string("99999999999999999999")};
  for (const EnvArgValue& value : values) {
    const std::string text = EnvArgText({"key", value});
    EXPECT_EQ(ParseEnvArg(text, "").value, value) << text;
    EXPECT_EQ(EnvArgText(ParseEnvArg(text, "")), text);
  }
}

TEST(EnvArgs, TheSameArgumentsAreTheSameList) {
  const std::vector<std::string> one = {"b=2", "a=1.50"}, other = {"a = 1.5", "b= 2"};
  EXPECT_EQ(ParseEnvArgs(one, ""), ParseEnvArgs(other, ""));
}

TEST(EnvArgs, WhatCannotBeOneIsRefused) {
  for (const char* bad : {"", "gravity", "=3", " = 3"}) {
    EXPECT_EQ(Refusal({bad}), fmt::format("--env-arg {}: expected key=value", bad));
  }
  EXPECT_NE(Refusal({"a=1", "b=2", "a=3"}).find("give each key once"), std::string::npos);
  EXPECT_NE(Refusal({"n=99999999999999999999"}).find("too large"), std::string::npos);
}

}  // namespace
}  // namespace trireme
