#include "trireme/experience/desk_choices.h"

#include <utility>

#include "trireme/base/error.h"
#include "trireme/env/row.h"

namespace trireme {

DeskChoices::~DeskChoices() {
  if (!asked_.empty()) inference_.End();  // nobody writes to what was asked for any more
}

// Up to its end with the lock: what is in answered_ may be gone as soon as that is free, and with it the desk and its transport.
void DeskChoices::Asked::OnAnswer(bool is_chosen) {
  chosen = is_chosen;
  const std::lock_guard lock(choices.mutex_);
  choices.answered_.push_back(this);
  choices.transport_.Wake();
}

void DeskChoices::Enter(PeerId id, std::uint64_t seed, std::uint32_t first_env) {
  const auto [found, is_new] = actors_.try_emplace(id, inference_, seed, first_env);
  if (is_new) found->second.member.Come();
}

void DeskChoices::Leave(PeerId id) { actors_.erase(id); }

bool DeskChoices::begins(PeerId id) const {
  const auto found = actors_.find(id);
  return found != actors_.end() && found->second.samples == 0;
}

void DeskChoices::Ask(PeerId id, Incoming& message) {
  const auto found = actors_.find(id);
  if (found == actors_.end()) Fail("a request of an actor that has not begun");
  Actor& actor = found->second;
  if (actor.asks) Fail("a request before the last one was answered");
  std::unique_ptr<Asked> asked;
  if (spare_.empty()) {
    asked = std::make_unique<Asked>(*this, id);
  } else {
    asked = std::move(spare_.back());
    spare_.pop_back();
  }
  asked->peer = id;
  ChoiceRequest& content = asked->content;
  DecodeRequest(message, shape_, content);
  actor.samples += static_cast<std::uint64_t>(content.header.envs);
  if (actor.samples > samples()) Fail("requests for more samples than the {} of a trajectory", samples());
  const RowLayout layout(shape_.env);
  const auto n = static_cast<std::size_t>(content.header.envs);
  asked->request = {.seed = actor.seed,
                    .step = content.header.step,
                    .first_env = actor.first_env + static_cast<std::uint32_t>(content.header.first),
                    .n = content.header.envs,
                    .obs = layout.ReadObs(content.rows.data(), n, content.obs),
                    .masks = layout.ReadMasks(content.rows.data(), n, content.masks),
                    .actions = content.actions.data(),
                    .extra = content.extra.data()};
  actor.asks = true;
  Asked& question = *asked;
  asked_.emplace(&question, std::move(asked));
  inference_.Ask(question, actor.member);
}

void DeskChoices::EndTrajectory(PeerId id) {
  const auto found = actors_.find(id);
  if (found == actors_.end()) Fail("a trajectory of an actor that has not begun");
  Actor& actor = found->second;
  if (actor.asks || actor.samples != samples())
    Fail("a trajectory of {} samples, where {} were asked for", samples(), actor.samples);
  actor.samples = 0;
  actor.member.Come();
}

void DeskChoices::Answer() {
  ready_.clear();
  {
    const std::lock_guard lock(mutex_);
    ready_.swap(answered_);
  }
  for (Asked* question : ready_) {
    auto node = asked_.extract(question);
    const auto found = actors_.find(question->peer);
    if (found != actors_.end() && question->chosen) {
      transport_.Send(question->peer, EncodeChoices(question->content));
      found->second.asks = false;
      if (found->second.samples == samples()) found->second.member.Go();
    }
    if (spare_.size() < actors_.size()) spare_.push_back(std::move(node.mapped()));
  }
}

}  // namespace trireme
