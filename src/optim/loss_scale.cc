#include "trireme/optim/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"

namespace trireme {

bool LossScale::Update(bool finite) {
  if (finite) {
    if (++finite_ < kPatience) return true;
    scale_ = std::min(2 * scale_, kMost);
  } else {
    if (scale_ <= kLeast) return false;
    scale_ /= 2;
  }
  finite_ = 0;
  return true;
}

void LossScale::Save(StateWriter& out, const std::string& scope) const {
  out.PutValue(scope + "/scale", scale_);
  out.PutValue(scope + "/finite", finite_);
}

void LossScale::Load(const StateReader& in, const std::string& scope) {
  const auto scale = in.GetValue<float>(scope + "/scale");
  const auto finite = in.GetValue<std::uint32_t>(scope + "/finite");
  int exponent = 0;
  const bool valid =
      scale >= kLeast && scale <= kMost && std::frexp(scale, &exponent) == 0.5f && finite < kPatience;
  if (!valid) Fail("the saved loss scale {} after {} updates is none", scale, finite);
  scale_ = scale;
  finite_ = finite;
}

}  // namespace trireme
