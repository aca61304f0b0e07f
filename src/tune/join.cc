#include "trireme/tune/join.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/base/text.h"
#include "trireme/base/version.h"
#include "trireme/rpc/text_message.h"
#include "trireme/train/run_config.h"
#include "trireme/tune/joined_trials.h"
#include "trireme/tune/processor_claim.h"
#include "trireme/tune/trial_process.h"

namespace trireme {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kAnswer = 1s;   // for a search to take a question
constexpr auto kLook = 250ms;  // signals are looked for so often
constexpr double kBeat = 1;    // seconds between signs of life
constexpr double kSilence =
    75;  // after which a search that does not answer is gone: it may wait for its disk
constexpr std::string_view kTokenRefused = "refused the token";

// What ends a conversation.
struct Lost {};
struct Over {};
struct Stopped {};

// What all threads of the worker share.
struct Worker {
  const JoinOptions& options;
  std::mutex mutex = {};     // guards:
  std::string checked = {};  // settings that are known to work here
  std::exception_ptr failure = {};
  int trials = 0;
  std::atomic<bool> ends = false;

  bool Stops() const { return ends || (options.stop != nullptr && options.stop->load()); }

  void Failed(std::exception_ptr why) {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::move(why);
    ends = true;
  }

  // A host that lacks something would fail one trial after the other.
  void CheckSettings(const std::string& config) {
    const std::lock_guard lock(mutex);
    if (config == checked) return;
    const std::unique_ptr<RunSettings> settings = ParseRunSettings(config, "the settings of the search");
    settings->Resolve(1, 1);
    checked = config;
    options.say(fmt::format("joined the search at {}: {} with {}, {} at a time", options.place,
                            settings->run.env, settings->run.algo, options.parallel));
  }
};

// One trial at a time, on a stream of its own.
class Helper {
 public:
  explicit Helper(Worker& worker) : worker_(worker), options_(worker.options) {}

  void Run() {
    try {
      heard_s_ = MonotonicSeconds();
      for (;;) {
        try {
          Greet();
          for (;;) RunNext();
        } catch (const Lost&) {
          if (worker_.Stops()) throw Stopped();
          std::this_thread::sleep_for(kLook);
        }
      }
    } catch (const Over&) {
    } catch (const Stopped&) {
      if (greeted_) stream_->Send(TextMessage(Json{{"leave", true}}.dump()), Clock::now() + kAnswer);
    } catch (const Json::exception& error) {
      worker_.Failed(std::make_exception_ptr(
          Error(fmt::format("what answers at {} is no search: {}", options_.place, error.what()))));
    } catch (const std::exception&) {
      worker_.Failed(std::current_exception());
    }
  }

 private:
  void Greet() {
    greeted_ = false;
    address_ = options_.find();
    if (address_.empty()) Missed("no search is at work on this study");
    stream_ = options_.transport->Connect(address_, options_.security);
    const Json welcome = Ask({{"hello", Version()}});
    silence_s_ = welcome.at("silence_s");
    greeted_ = true;
    CheckShared(welcome.at("shared"), welcome.at("holds"));
    worker_.CheckSettings(welcome.at("welcome"));
  }

  // Members of a population go on from files that others have left.
  static void CheckShared(const std::string& file, const std::string& holds) {
    std::error_code error;
    if (file.empty() || (std::filesystem::exists(file, error) && ReadFile(file) == holds)) return;
    Fail("{} is not here: hosts that run trials of method pbt must share the folder of the study",
         Printable(file));
  }

  void RunNext() {
    const Json answer = Ask({{"next", true}});
    if (!answer.contains("order")) return Listen(kLook);
    RunTrial(TrialOrder::Parse(answer["order"].get<std::string>()));
  }

  void RunTrial(const TrialOrder& order) {
    TrialProcess process(options_.command, order, claim_.processor());
    const auto drops = [](const Json& answer) { return answer.value("drop", false); };
    for (;;) {
      pollfd waits[] = {{process.socket(), POLLIN, 0}, {process.errors(), POLLIN, 0}};
      poll(waits, 2, static_cast<int>(kLook / 1ms));
      if (worker_.Stops()) throw Stopped();
      const bool open = process.Receive();
      while (const std::optional<std::string> line = process.TakeLine()) {
        const Json answer = Ask({{"line", *line}});
        if (drops(answer)) return Count();
        if (answer.contains("answer")) process.Answer(answer["answer"].get<std::string>());
      }
      std::string failed;
      if (!open) failed = "it " + process.Ended();
      if (failed.empty() && MonotonicSeconds() > process.last_sign_s() + silence_s_)
        failed = fmt::format("it hung: nothing came for {:g} seconds", silence_s_);
      if (!failed.empty()) {
        Ask({{"failed", failed}});
        return Count();
      }
      if (MonotonicSeconds() > heard_s_ + kBeat && drops(Ask({{"beat", true}}))) return;
    }
  }

  void Count() {
    const std::lock_guard lock(worker_.mutex);
    ++worker_.trials;
  }

  // The answer to a question. Throws Lost when there is none.
  Json Ask(const Json& question) {
    const std::string text = question.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (greeted_) Listen(0ms);
    if (!stream_->Send(TextMessage(text), Clock::now() + kAnswer)) HearWhy();
    const double asked_s = MonotonicSeconds();
    for (;;) {
      if (worker_.Stops()) throw Stopped();
      if (Incoming* const message = stream_->Receive(Clock::now() + kLook)) {
        heard_s_ = MonotonicSeconds();
        Json answer = Json::parse(ReadText(*message), nullptr, false);
        if (!answer.is_object()) Fail("what answers at {} is no search", address_);
        return answer;
      }
      if (stream_->closed() || MonotonicSeconds() > asked_s + kSilence) HearWhy();
    }
  }

  // Throws what the end of the stream means.
  [[noreturn]] void HearWhy() {
    const std::string why = stream_->why();
    if (why == kSearchIsOver) throw Over();
    const bool later = why.starts_with(kComesBack);
    if (!why.empty()) said_ = Printable(later ? why.substr(kComesBack.size()) : why);
    if (why.ends_with(kTokenRefused)) Fail("{}: give --token-file the secret of the search", said_);
    const bool by_search = !why.empty() && !later && !why.starts_with(address_);
    if (by_search) Fail("the search at {}: {}", address_, said_);
    Missed(said_);
  }

  [[noreturn]] void Missed(const std::string& why) const {
    if (MonotonicSeconds() > heard_s_ + options_.wait_s)
      Fail(
          "no search has answered at {} for {:g} seconds{}: start it with `trireme tune --listen`, or wait "
          "longer with --wait",
          options_.place, options_.wait_s, why.empty() ? "" : fmt::format(" ({})", why));
    throw Lost();
  }

  // For the end of the stream: why it has ended is heard only by those who listen when it does.
  void Listen(std::chrono::milliseconds time) {
    if (worker_.Stops()) throw Stopped();
    stream_->Receive(Clock::now() + time);
    if (stream_->closed()) HearWhy();
  }

  Worker& worker_;
  const JoinOptions& options_;
  ProcessorClaim claim_;
  std::unique_ptr<Stream> stream_;
  bool greeted_ = false;
  std::string address_, said_;
  double heard_s_ = 0, silence_s_ = 0;
};

}  // namespace

bool JoinSearch(const JoinOptions& options) {
  Worker worker{options};
  std::list<Helper> helpers;
  std::vector<std::thread> threads;
  for (int i = 0; i < options.parallel; ++i)
    threads.emplace_back([&helper = helpers.emplace_back(worker)] { helper.Run(); });
  for (std::thread& thread : threads) thread.join();
  if (worker.failure) std::rethrow_exception(worker.failure);
  options.say(fmt::format("ran {} trials", worker.trials));
  return !worker.Stops();
}

}  // namespace trireme
