#include "trireme/cli/command_line.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

// A program with one command that has an option of every kind.
struct Program {
  Program() : line("program", "does things", "1.2.3") {
    CommandLine& command = line.AddCommand("run", "runs it");
    command.Option("--name", name, "its name");
    command.Option("--empty", empty, "nothing at first");
    command.Option("--maybe", maybe, "if at all");
    command.HiddenOption("--secret", secret);
    command.Option("--set", many, "may be repeated");
    command.Option(
        "--take", [this](const std::string& value) { taken += value + ";"; }, "is handed over");
    command.RequiredOption("place", place, "told by its place");
    command.Flag("--flag", flag, "on or off");
    command.Footer("The end.");
    line.AddCommand("other", "does another thing");
    line.RequireCommand();
  }
  std::optional<int> Parse(std::vector<std::string> words) {
    words.insert(words.begin(), "program");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return line.Parse(static_cast<int>(argv.size()), argv.data());
  }

  CommandLine line;
  std::string name = "default", empty, taken, place, secret;
  std::optional<std::string> maybe;
  std::vector<std::string> many;
  bool flag = false;
};

TEST(CommandLine, FillsInWhatWasTypedAndLeavesTheRest) {
  Program program;
  EXPECT_EQ(program.Parse({"run", "here"}), std::nullopt);
  EXPECT_TRUE(program.line.Given("run"));
  EXPECT_FALSE(program.line.Given("other"));
  EXPECT_EQ(program.place, "here");
  EXPECT_EQ(program.name, "default");
  EXPECT_EQ(program.maybe, std::nullopt);
  EXPECT_FALSE(program.flag);

  Program all;
  EXPECT_EQ(all.Parse({"run", "--set", "a=1", "here", "--name", "x", "--maybe", "y", "--set", "b=2", "--take",
                       "z", "--flag", "--secret", "s"}),
            std::nullopt);
  EXPECT_EQ(all.place, "here");
  EXPECT_EQ(all.name, "x");
  EXPECT_EQ(all.maybe, "y");
  EXPECT_EQ(all.many, (std::vector<std::string>{"a=1", "b=2"}));
  EXPECT_EQ(all.taken, "z;");
  EXPECT_EQ(all.secret, "s");
  EXPECT_TRUE(all.flag);
}

TEST(CommandLine, WhatCannotBeUnderstoodIsAUsageError) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{},
                                             {"walk"},
                                             {"run"},
                                             {"run", "here", "there"},
                                             {"run", "here", "--unknown"},
                                             {"run", "here", "--name"},
                                             {"run", "here", "--set", "a=1", "b=2"},
                                             {"run", "here", "other"}}) {
    Program program;
    EXPECT_THROW(program.Parse(words), UsageError) << testing::PrintToString(words);
  }
}

TEST(CommandLine, HelpAndVersionAreAllThereIsToDo) {
  const auto printed = [](std::vector<std::string> words) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(Program().Parse(std::move(words)), 0);
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(printed({"--version"}), "1.2.3\n");
  const std::string program = printed({"--help"});
  EXPECT_NE(program.find("runs it"), std::string::npos) << program;
  const std::string command = printed({"run", "--help"});
  for (const char* part : {"TEXT=default", "told by its place", "REQUIRED", "The end."}) {
    EXPECT_NE(command.find(part), std::string::npos) << part << "\n" << command;
  }
  EXPECT_EQ(command.find("--secret"), std::string::npos) << command;
  EXPECT_EQ(command.find("TEXT= "), std::string::npos) << command;
  EXPECT_EQ(command.find("TEXT=\"\""), std::string::npos) << command;
}

}  // namespace
}  // namespace trireme
