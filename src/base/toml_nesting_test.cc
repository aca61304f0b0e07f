#include "trireme/base/toml_nesting.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trireme/base/config.h"

namespace trireme {
namespace {

std::string Repeat(std::string_view text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Every way to nest, `levels` deep.
std::vector<std::string> Nested(int levels) {
  const std::string dots = Repeat(".x", levels), open = Repeat("[", levels), close = Repeat("]", levels);
  return {
      fmt::format("x{} = 1\n", dots),
      fmt::format("\"x\"{} = 1\n", Repeat(" . 'x'", levels)),
      fmt::format("[x{}]\n", dots),
      fmt::format("[[x{}]]\n", dots),
      fmt::format("x = {}{}\n", open, close),
      fmt::format("x = {}{}\n", Repeat("[\n", levels), close),
      fmt::format("x = {}1{}\n", Repeat("{x = ", levels), Repeat("}", levels)),
      fmt::format("x = {}1", Repeat("[{y = ", levels / 2 + 1)),
      // What looks like the end of a string, or like a string or a comment, is none.
      fmt::format("x = [\"\"\"a\"\"\"\", {}\n", open),
      fmt::format("x = ['''a''''', {}\n", open),
      fmt::format("x = [\"\\\\\", {}\n", open),
      fmt::format("x = ['\\', {}\n", open),
      fmt::format("x = \"#\"\ny = {}\n", open),
      fmt::format("# \"\nx = {}\n", open),
  };
}

TEST(TomlNestingTest, DepthIsFoundHoweverItIsWritten) {
  for (const int levels : {kDeepestToml + 1, 100, 31'500}) {
    for (const std::string& text : Nested(levels)) EXPECT_TRUE(FindDeepToml(text)) << text.substr(0, 80);
  }
  EXPECT_EQ(FindDeepToml(fmt::format("\n{}", Repeat("[", 20))), std::optional<std::size_t>(17));
}

TEST(TomlNestingTest, WhatIsWideIsNotDeep) {
  for (const std::string& text : Nested(kDeepestToml - 2)) EXPECT_FALSE(FindDeepToml(text)) << text;
  const std::string many = Repeat("[.", 1000);
  EXPECT_FALSE(FindDeepToml(fmt::format("x = [{}]\n", Repeat("[1.5], ", 1000))));
  EXPECT_FALSE(FindDeepToml(Repeat("a.b = 1.5\n", 1000)));
  EXPECT_FALSE(FindDeepToml(fmt::format("# {}\nx = 1 # {}", many, many)));
  EXPECT_FALSE(FindDeepToml(fmt::format("x = \"{}\\\"{}\"", many, many)));
  EXPECT_FALSE(FindDeepToml(fmt::format("x = '{}'", many)));
  EXPECT_FALSE(FindDeepToml(fmt::format("x = \"\"\"\n{}\"\n{}\"\"\"", many, many)));
  EXPECT_FALSE(FindDeepToml(fmt::format("x = \"never closed {}", many)));
  EXPECT_FALSE(FindDeepToml(""));
}

struct OneNumber {
  int x = 0;
  void Fields(ConfigFields& field) { field("x", x, "a number"); }
};

TEST(TomlNestingTest, SettingsThatNestAreRefusedBeforeTheyAreParsed) {
  OneNumber number;
  ConfigFields fields;
  fields.Add(number);
  for (const std::string& text : Nested(31'500)) {
    try {
      fields.ApplyToml(text, "x.toml");
      ADD_FAILURE() << text.substr(0, 80);
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("x.toml:")) << error.what();
      EXPECT_NE(std::string_view(error.what()).find("nest more than 16 levels"), std::string_view::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace trireme
