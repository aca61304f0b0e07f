// The factor that keeps gradients of 16 bits away from zero and from infinity (Micikevicius et al. 2018,
// arXiv:1710.03740): a power of two that is halved whenever a gradient was not finite, and doubled after
// kPatience that were. An update whose gradient was not finite is left out.
//
// Not thread safe. Workers in step see the same gradients, so theirs are equal.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/state.h"

namespace trireme {

class LossScale {
 public:
  static constexpr float kFirst = 0x1p15f, kLeast = 1, kMost = 0x1p24f;
  static constexpr std::uint32_t kPatience = 2000;

  float scale() const { return scale_; }
  // After an update. Returns false when it cannot be the scale that has made a gradient infinite: it was at its
  // least already.
  bool Update(bool finite);

  void Save(StateWriter& out, const std::string& scope) const;
  // Throws Error when the sections are missing, or hold what no LossScale has.
  void Load(const StateReader& in, const std::string& scope);

 private:
  float scale_ = kFirst;
  std::uint32_t finite_ = 0;  // updates since the scale was changed
};

}  // namespace trireme
