#include "trireme/train/stores.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/train/run_config.h"

namespace trireme {
namespace {

TEST(StoresTest, EveryRowIsWholeAndFound) {
  for (const StoreEntry& store : AllStores()) {
    SCOPED_TRACE(store.name);
    EXPECT_EQ(&FindStore(store.name), &store);
    EXPECT_FALSE(store.help.empty());
    EXPECT_NE(store.coordination, nullptr);
    EXPECT_NE(store.make, nullptr);
    EXPECT_FALSE(store.one_process && store.on_servers);
  }
  EXPECT_EQ(std::ranges::count(AllStores(), true, &StoreEntry::on_servers), 1);
}

TEST(StoresTest, AnUnknownNameIsRefusedWithThoseThereAre) {
  try {
    FindStore("redis");
    FAIL() << "it was found";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--store: expected one of local, allreduce, shared, server, not 'redis'");
  }
}

TEST(StoresTest, ThePaceDecidesHowWorkersOfServersMove) {
  RunConfig run;
  run.store = StoreOnServers().name;
  EXPECT_EQ(&run.coordination(), &kInStep);
  for (const Pace pace : {Pace::kAsync, Pace::kSsp}) {
    run.server.pace = pace;
    EXPECT_EQ(&run.coordination(), &kElastic);
  }
  run.store = "shared";
  EXPECT_EQ(&run.coordination(), &kFree);  // whatever the pace of servers it does not have
}

TEST(StoresTest, WorkersOfOtherProcessesCountOnlyInStepOnServers) {
  RunConfig run;
  run.workers = 2;
  run.server.run_workers = 8;
  for (const StoreEntry& store : AllStores()) {
    run.store = store.name;
    EXPECT_EQ(run.total_workers(), store.on_servers ? 8 : 2) << store.name;
  }
  run.store = StoreOnServers().name;
  run.server.pace = Pace::kAsync;
  EXPECT_EQ(run.total_workers(), 2);
}

}  // namespace
}  // namespace trireme
