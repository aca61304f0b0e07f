// A study as a page for people: the best so far over the trials, what mattered, all trials as lines through their settings, who
// came to which rung, who went on from whom, the finalists, and the best settings.
#pragma once

#include <string>
#include <vector>

#include "trireme/tune/objective.h"
#include "trireme/tune/study.h"
#include "trireme/tune/tuner.h"

namespace trireme {

struct StudyPage {
  std::string title;  // "CartPole-v1 with ppo"
  Aim aim;
  std::vector<StudyTrial> trials;
  std::vector<PastTrial> history;  // the same, for what mattered
  std::vector<Finalist> finalists;
  std::string preset;  // the best settings, TOML
  int population = 0;  // members, of method pbt
};

// Self-contained: no scripts, nothing loaded from elsewhere, all texts escaped.
std::string StudyPageHtml(const StudyPage& page, const Space& space);

}  // namespace trireme
