#include <gtest/gtest.h>

#include <string>

#include "trireme/algo/algorithm.h"

namespace trireme {
namespace {

AlgorithmEntry PpoUnder(const std::string& name) {
  AlgorithmEntry entry = FindAlgorithm("ppo");
  entry.name = name;
  return entry;
}

TEST(AlgorithmTable, IsOpenAndKeepsItsRowsWhereTheyAre) {
  const AlgorithmEntry& ppo = FindAlgorithm("ppo");
  const std::size_t before = AllAlgorithms().size();
  for (int i = 0; i < 100; ++i) AddAlgorithm(PpoUnder("mine-" + std::to_string(i)));
  EXPECT_EQ(&FindAlgorithm("ppo"), &ppo);
  EXPECT_EQ(AllAlgorithms().size(), before + 100);
  EXPECT_EQ(AllAlgorithms().back().name, "mine-99");
  EXPECT_EQ(FindAlgorithm("mine-7").name, "mine-7");
}

TEST(AlgorithmTable, TakesWhatDrivesOneKindOfActionOnly) {
  AlgorithmEntry entry = PpoUnder("parts only");
  entry.discrete = entry.continuous = false;
  ASSERT_TRUE(entry.multi_discrete);
  AddAlgorithm(entry);
  EXPECT_EQ(FindAlgorithm("parts only").name, "parts only");
}

TEST(AlgorithmTable, RefusesWhatIsThereOrIsNoAlgorithm) {
  EXPECT_THROW(AddAlgorithm(PpoUnder("dqn")), Error);
  EXPECT_THROW(AddAlgorithm(PpoUnder("")), Error);
  AlgorithmEntry drives_nothing = PpoUnder("nothing");
  drives_nothing.discrete = drives_nothing.continuous = drives_nothing.multi_discrete = false;
  EXPECT_THROW(AddAlgorithm(drives_nothing), Error);
  AlgorithmEntry no_settings = PpoUnder("no settings");
  no_settings.make_settings = nullptr;
  EXPECT_THROW(AddAlgorithm(no_settings), Error);
  EXPECT_THROW(FindAlgorithm("nothing"), Error);
}

}  // namespace
}  // namespace trireme
