#include "trireme/tune/joined_trials.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/base/text.h"
#include "trireme/base/version.h"
#include "trireme/rpc/text_message.h"

namespace trireme {
namespace {

using Json = nlohmann::json;

constexpr auto kLook = std::chrono::milliseconds(100);
constexpr double kFarewell = 2;     // seconds for workers to hear why their streams close
constexpr double kLate = 3;         // seconds between two looks, which should be a tenth of one
constexpr double kLatecomers = 60;  // seconds for those that are awaited and have not come
constexpr std::size_t kLongestQuestion = std::size_t{2} << 20;  // with the results of a thousand seeds

// What a stranger sends is no text that JSON could always hold.
std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

JoinedTrials::JoinedTrials(TrialDesk& desk, std::mutex& mutex, std::unique_ptr<ServerTransport> transport,
                           const TuneOptions& options)
    : desk_(desk), mutex_(mutex), options_(options), transport_(std::move(transport)), thread_([this] {
        transport_->Run(*this, [this] { return left_.load(); });
      }) {}

JoinedTrials::~JoinedTrials() {
  const bool stopped = options_.stop != nullptr && options_.stop->load();
  comes_back_ = stopped || std::uncaught_exceptions() > 0;
  leaves_ = true;
  thread_.join();
}

void JoinedTrials::Check() const {
  if (failure_) std::rethrow_exception(failure_);
}

template <class Use>
void JoinedTrials::WithDesk(Use&& use) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  try {
    use();
  } catch (const Json::exception&) {
    throw;  // of the worker that has asked
  } catch (const std::exception&) {
    failure_ = std::current_exception();
  }
}

void JoinedTrials::OnOpen(PeerId peer, const std::string& address) {
  ++opened_;
  peers_[peer] = {.address = address, .heard_s = MonotonicSeconds()};
}

void JoinedTrials::OnMessage(PeerId id, Incoming& message) {
  Peer& peer = peers_[id];
  peer.heard_s = MonotonicSeconds();
  const Json question = Json::parse(ReadText(message), nullptr, false);
  Json answer;
  try {
    answer = Answer(id, peer, question);
  } catch (const Json::exception& error) {
    return transport_->Close(id, fmt::format("this is no question of a worker: {}", error.what()));
  } catch (const Error& error) {
    return transport_->Close(id, error.what());
  }
  transport_->Send(id, TextMessage(Dump(answer)));
}

Json JoinedTrials::Answer(PeerId id, Peer& peer, const Json& question) {
  if (peer.seat == nullptr) {
    const std::string version = question.at("hello");
    if (version != Version())
      Fail("the search runs trireme {}, and the worker {}: use the same", Version(), Printable(version));
    transport_->Allow(id, kLongestQuestion);
    WithDesk([&] { peer.seat = &desk_.AddSeat(); });
    return {{"welcome", desk_.base()},
            {"silence_s", options_.silence_s},
            {"shared", desk_.shared_file().string()},
            {"holds", desk_.shared_text()}};
  }
  Json answer = Json::object();
  WithDesk([&] {
    TrialDesk::Seat& seat = *peer.seat;
    if (question.contains("leave")) {
      if (!seat.idle()) desk_.GiveBack(seat, /*lost=*/false);
      return;
    }
    if (question.contains("next")) {
      if (!seat.idle()) desk_.GiveBack(seat);
      const std::optional<TrialOrder> order = desk_.Next(seat);
      peer.line_s = peer.heard_s;
      if (order) {
        answer["order"] = order->ToJson();
      } else {
        answer["later"] = true;
      }
      return;
    }
    if (!seat.idle() && question.contains("line")) {
      peer.line_s = peer.heard_s;
      if (const auto said = desk_.Take(seat, question["line"].get<std::string>())) answer["answer"] = *said;
    } else if (!seat.idle() && question.contains("failed")) {
      desk_.Failed(seat, Printable(question["failed"].get<std::string>()));
    }
    if (seat.idle()) answer["drop"] = true;
  });
  return answer;
}

void JoinedTrials::Forget(Peer& peer) {
  if (peer.seat == nullptr) return;
  WithDesk([&] {
    if (!peer.seat->idle())
      options_.say(fmt::format("the worker at {} is gone: another one runs its trial", peer.address));
    desk_.RemoveSeat(*peer.seat);
  });
  peer.seat = nullptr;
}

void JoinedTrials::OnClose(PeerId peer) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  Forget(found->second);
  peers_.erase(found);
}

Deadline JoinedTrials::OnTime(Deadline now) {
  const double now_s = MonotonicSeconds();
  // Where this process was kept from its work, what workers have said in the meantime is still to be heard.
  const bool late = now_s > last_look_s_ + kLate;
  last_look_s_ = now_s;
  for (auto& [id, peer] : peers_) {
    if (late) peer.heard_s = peer.line_s = now_s;
    if (leaves_) {
      transport_->Close(id, comes_back_ ? fmt::format("{}the search was interrupted", kComesBack)
                                        : std::string(kSearchIsOver));
    } else if (now_s > peer.heard_s + kWorkerLost) {
      Forget(peer);
      transport_->Close(id, fmt::format("{}nothing came for {:g} seconds", kComesBack, kWorkerLost));
    } else if (peer.seat != nullptr) {
      WithDesk([&] {
        if (!peer.seat->idle() && now_s > peer.line_s + options_.silence_s)
          desk_.Failed(*peer.seat, fmt::format("it hung: nothing came for {:g} seconds", options_.silence_s));
      });
    }
  }
  if (leaves_) {
    const bool awaits = opened_ < options_.awaited && !comes_back_;
    if (leaves_by_s_ == 0) leaves_by_s_ = now_s + (awaits ? kLatecomers : kFarewell);
    left_ = (peers_.empty() && !awaits) || now_s > leaves_by_s_;
  }
  return now + kLook;
}

}  // namespace trireme
