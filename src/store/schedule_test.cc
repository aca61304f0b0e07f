#include "trireme/store/schedule.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"

namespace trireme {
namespace {

using Operation = Schedule::Operation;

std::string MessageOf(std::string_view text, int workers) {
  try {
    const Schedule schedule(text, workers);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Takes one turn, and writes it down as schedules do. The log needs no lock: turns are taken alone.
void Take(Schedule& schedule, int worker, Operation operation, std::string& log) {
  schedule.InTurn(worker, operation,
                  [&] { log += fmt::format("{}{} ", worker, operation == Operation::kPull ? '<' : '>'); });
}
void PullAndPush(Schedule& schedule, int worker, std::string& log) {
  Take(schedule, worker, Operation::kPull, log);
  Take(schedule, worker, Operation::kPush, log);
}

// Lets others run for a while, or not at all.
void Dawdle(RandomStream& random) {
  for (std::uint32_t i = random.NextBelow(8); i > 0; --i) std::this_thread::yield();
}

std::string Repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Schedule, AcceptsAnyAlternatingOrder) {
  for (const char* text :
       {"0< 1< 0> 1>", "0<0>1<1>", " 0<, 0>,1< 1> ", "1< 0< 1> 1< 0> 1>", "0< 0> 0< 0> 1< 1>"}) {
    EXPECT_EQ(MessageOf(text, 2), "");
  }
  EXPECT_EQ(MessageOf("0< 0>", 1), "");
  EXPECT_EQ(MessageOf("11< 11> 0< 0> 1< 1> 2< 2> 3< 3> 4< 4> 5< 5> 6< 6> 7< 7> 8< 8> 9< 9> 10< 10>", 12), "");
}

TEST(Schedule, ShowsTheTextThatCannotBeRead) {
  for (const char* text : {"0", "0<1", "< 0>", "0 < 0 >", "a< a>", "0< 0> ;", "0= 0>", "0<\n0>", "1.5< 1.5>",
                           "99999999999< 99999999999>"}) {
    const std::string message = MessageOf(text, 1);
    EXPECT_NE(message.find(fmt::format("schedule \"{}\": expected entries like", text)), std::string::npos)
        << text << ": " << message;
  }
}

TEST(Schedule, NamesAWorkerThatDoesNotExist) {
  EXPECT_EQ(MessageOf("0< 0> 2< 2>", 2), "schedule \"0< 0> 2< 2>\": there is no worker 2; they are 0 to 1");
  EXPECT_NE(MessageOf("-1< -1>", 2).find("there is no worker -1"), std::string::npos);
}

TEST(Schedule, NamesAWorkerThatCouldNotGoOn) {
  const auto names = [](const char* text, int workers, int worker) {
    const std::string message = MessageOf(text, workers);
    EXPECT_NE(message.find(fmt::format("schedule \"{}\": worker {} must", text, worker)), std::string::npos)
        << text << ": " << message;
  };
  names("", 1, 0);
  names("0< 0>", 2, 1);                    // has no turn
  names("0> 0<", 1, 0);                    // begins with a push
  names("0< 1< 0> 1> 0<", 2, 0);           // ends with a pull
  names("0< 1< 1> 0< 0> 1< 0> 1>", 2, 0);  // pulls twice
  names("0< 1< 0> 1> 1>", 2, 1);           // pushes twice
}

TEST(Schedule, IsKeptHoweverThreadsAreDelayed) {
  constexpr int kRounds = 100;
  const std::string text = "0< 2< 0> 0< 1< 2> 0> 1> 2< 2> 1< 0< 2< 0> 1> 2> ";
  const int pairs[] = {3, 2, 3};
  Schedule schedule(text, 3);
  std::string log;
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 3; ++worker) {
    threads.emplace_back([&, worker] {
      RandomStream random(3, Purpose::kTest, static_cast<std::uint32_t>(worker), 0);
      for (int i = 0; i < kRounds * pairs[worker]; ++i) {
        Dawdle(random);
        Take(schedule, worker, Operation::kPull, log);
        Dawdle(random);
        Take(schedule, worker, Operation::kPush, log);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(log, Repeat(text, kRounds));
}

TEST(Schedule, SkipsTheTurnsOfThoseWhoHaveLeft) {
  Schedule schedule("0< 1< 2< 0> 1> 2>", 3);
  std::string log;
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 3; ++worker) {
    threads.emplace_back([&, worker] {
      for (int i = 0; i <= worker; ++i) PullAndPush(schedule, worker, log);
      schedule.Leave(worker);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(log, "0< 1< 2< 0> 1> 2> 1< 2< 1> 2> 2< 2> ");
}

// Time and again, so that some of those who wait already sleep and some have yet to come.
TEST(Schedule, LeavingBeforeTheFirstTurnLetsOthersStart) {
  RandomStream random(5, Purpose::kTest, 0, 0);
  for (int time = 0; time < 50; ++time) {
    Schedule schedule("0< 0> 1< 1>", 2);
    std::string log;
    std::atomic<bool> coming = false;
    std::thread other([&] {
      coming = true;
      PullAndPush(schedule, 1, log);
    });
    while (!coming) std::this_thread::yield();
    for (int i = 0; i < 20; ++i) Dawdle(random);
    schedule.Leave(0);
    other.join();
    EXPECT_EQ(log, "1< 1> ");
  }
}

TEST(Schedule, TheWrongOperationIsAnErrorAndTakesNoTurn) {
  Schedule schedule("0< 1< 0> 1>", 2);
  std::string log;
  EXPECT_THROW(Take(schedule, 0, Operation::kPush, log), Error);
  EXPECT_EQ(log, "");
  Take(schedule, 0, Operation::kPull, log);
  Take(schedule, 1, Operation::kPull, log);
  try {
    Take(schedule, 0, Operation::kPull, log);
    ADD_FAILURE() << "a second pull was let through";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("worker 0 is to push but wants to pull"), std::string::npos);
  }
  Take(schedule, 0, Operation::kPush, log);
  Take(schedule, 1, Operation::kPush, log);
  EXPECT_EQ(log, "0< 1< 0> 1> ");
}

TEST(Schedule, AbortReleasesThoseWhoWaitAndThoseWhoCome) {
  Schedule schedule("0< 0> 1< 1> 2< 2>", 3);
  std::string log;
  std::atomic<int> coming = 0, released = 0;
  std::vector<std::thread> threads;
  for (const int worker : {1, 2}) {
    threads.emplace_back([&, worker] {
      ++coming;
      try {
        Take(schedule, worker, Operation::kPull, log);
      } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "another worker failed");
        ++released;
      }
    });
  }
  while (coming < 2) std::this_thread::yield();
  RandomStream random(6, Purpose::kTest, 0, 0);
  for (int i = 0; i < 100; ++i) Dawdle(random);  // mostly enough for both to fall asleep
  schedule.Abort();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(released, 2);
  EXPECT_THROW(Take(schedule, 0, Operation::kPull, log), Error);
  EXPECT_EQ(log, "");
}

TEST(ScheduleDeathTest, WhoHasLeftHasNoTurns) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  Schedule schedule("0< 0> 1< 1>", 2);
  schedule.Leave(0);
  EXPECT_DEATH(schedule.InTurn(0, Operation::kPull, [] {}), "CHECK");
}

}  // namespace
}  // namespace trireme
