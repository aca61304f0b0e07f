#include <memory>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/env/batch.h"
#include "trireme/env/classic/acrobot.h"
#include "trireme/env/classic/cart_pole.h"
#include "trireme/env/classic/mountain_car.h"
#include "trireme/env/classic/mountain_car_continuous.h"
#include "trireme/env/classic/pendulum.h"
#include "trireme/env/env.h"

namespace trireme {
namespace {

template <class E>
EnvEntry Entry() {
  return {.spec = E::Spec(),
          .make = [](int size) -> std::unique_ptr<EnvBatch> { return std::make_unique<SoaBatch<E>>(size); }};
}

}  // namespace

std::span<const EnvEntry> AllEnvs() {
  static const std::vector<EnvEntry> table = {
      Entry<CartPole>(), Entry<MountainCar>(), Entry<MountainCarContinuous>(),
      Entry<Acrobot>(),  Entry<Pendulum>(),
  };
  return table;
}

const EnvEntry& FindEnv(const std::string& name) {
  std::vector<std::string> names;
  for (const EnvEntry& entry : AllEnvs()) {
    if (entry.spec.name == name) return entry;
    names.push_back(entry.spec.name);
  }
  Fail("there is no environment '{}'.{} `trireme envs` lists them", name, SuggestNearest(name, names));
}

}  // namespace trireme
