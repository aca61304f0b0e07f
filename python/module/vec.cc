// Native environments, stepped from Python. Arrays are views of the batch's own memory, read-only, and of the newest step;
// nothing is copied but choices, which Python has as whole numbers and environments as floats.
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "module.h"
#include "trireme/base/error.h"
#include "trireme/env/batch.h"
#include "trireme/env/checked_batch.h"
#include "trireme/env/registry.h"

namespace trireme::python {
namespace {

using Choices = nb::ndarray<const std::int64_t, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

class Vec {
 public:
  Vec(const std::string& name, int n, const Texts& options, const std::vector<std::string>& args) {
    if (n < 1) Fail("make_vec: there must be at least one environment, not {}", n);
    const nb::gil_scoped_release others_run;
    entry_ = FindEnv(name, options, ParseEnvArgs(args, "make_vec"));
    batch_ = MakeBatch(entry_, n, 0, Purpose::kEnvReset, 0);
    settable_ = dynamic_cast<SettableBatch*>(batch_.get());
    done_.resize(static_cast<std::size_t>(n));
    ended_.resize(done_.size());
    actions_.resize(entry_.spec.action.box() ? 0 : done_.size() * entry_.spec.action.parts.size());
  }

  nb::dict Spec() const { return SpecToDict(entry_.spec); }
  bool takes_seeds() const { return settable_ != nullptr; }
  // Views stay where they are from step to step, which not all environments promise.
  bool fixed() const { return settable_ != nullptr; }

  void Reset(std::uint64_t seed) {
    const nb::gil_scoped_release others_run;
    batch_->Reset(seed, Purpose::kEnvReset, 0);
  }
  void ResetEach(const std::vector<std::uint64_t>& seeds) {
    if (settable_ == nullptr || seeds.size() != done_.size()) {
      Fail("{} takes one seed, not {}", entry_.spec.name, seeds.size());
    }
    settable_->ResetEach(seeds, Purpose::kEnvReset);
  }

  // Both return how many episodes have ended.
  std::size_t StepChoices(const Choices& actions) {
    const nb::gil_scoped_release others_run;
    if (entry_.spec.action.box()) Fail("{}: actions are numbers, not choices", entry_.spec.name);
    if (actions.size() != actions_.size()) RefuseCount(actions.size(), actions_.size());
    const std::vector<int>& parts = entry_.spec.action.parts;
    if (parts.size() == 1) {
      if (!Convert(actions.data(), actions_.size(), static_cast<std::uint64_t>(parts[0])))
        RefuseChoice(actions);
    } else {
      bool good = true;
      for (std::size_t i = 0; i < actions_.size(); ++i) {
        good &= static_cast<std::uint64_t>(actions.data()[i]) <
                static_cast<std::uint64_t>(parts[i % parts.size()]);
        actions_[i] = static_cast<float>(actions.data()[i]);
      }
      if (!good) RefuseChoice(actions);
    }
    return Step(actions_);
  }
  std::size_t StepNumbers(const Numbers& actions) {
    const nb::gil_scoped_release others_run;
    if (!entry_.spec.action.box()) Fail("{}: actions are choices, whole numbers", entry_.spec.name);
    const std::size_t expected = done_.size() * static_cast<std::size_t>(entry_.spec.action.size());
    if (actions.size() != expected) RefuseCount(actions.size(), expected);
    bool numbers = true;
    for (std::size_t i = 0; i < expected; ++i) numbers &= actions.data()[i] == actions.data()[i];
    if (!numbers) RefuseNotANumber(actions);
    return Step({actions.data(), actions.size()});
  }

  const EnvBatch& batch() const { return *batch_; }
  const EnvSpec& spec() const { return entry_.spec; }
  std::span<const std::uint8_t> done() const { return done_; }
  std::span<const std::int64_t> ended() const { return ended_; }

  std::vector<double> StateOf(int i) const {
    CheckIndex(i);
    return settable_->StateOf(i);
  }
  void SetState(int i, const std::vector<double>& state) {
    if (const std::size_t size = StateOf(i).size(); size != state.size()) {
      Fail("a state of {} is {} numbers, not {}", entry_.spec.name, size, state.size());
    }
    settable_->SetState(i, state);
  }

 private:
  // actions_ <- choices; returns whether all are below `limit`.
  bool Convert(const std::int64_t* choices, std::size_t n, std::uint64_t limit) {
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < n; ++i) {
      most = std::max(most, static_cast<std::uint64_t>(choices[i]));
      actions_[i] = static_cast<float>(static_cast<std::int32_t>(choices[i]));
    }
    return most < limit;
  }

  void CheckIndex(int i) const {
    if (settable_ == nullptr) Fail("the states of {} cannot be looked at", entry_.spec.name);
    if (i < 0 || i >= batch_->size()) Fail("there is no environment {} among {}", i, batch_->size());
  }
  [[noreturn]] void RefuseCount(std::size_t found, std::size_t expected) const {
    Fail("{}: {} numbers of actions were given where {} are needed", entry_.spec.name, found, expected);
  }
  [[noreturn]] void RefuseChoice(const Choices& actions) const {
    const std::vector<int>& parts = entry_.spec.action.parts;
    std::size_t i = 0;
    while (static_cast<std::uint64_t>(actions.data()[i]) <
           static_cast<std::uint64_t>(parts[i % parts.size()]))
      ++i;
    Fail("{}: action {} of environment {} is not one of 0 ... {}", entry_.spec.name, actions.data()[i],
         i / parts.size(), parts[i % parts.size()] - 1);
  }
  [[noreturn]] void RefuseNotANumber(const Numbers& actions) const {
    const float* const first = actions.data();
    const auto bad =
        std::find_if(first, first + actions.size(), [](float value) { return std::isnan(value); });
    Fail("{}: an action of environment {} is not a number", entry_.spec.name,
         (bad - first) / entry_.spec.action.size());
  }

  std::size_t Step(std::span<const float> actions) {
    batch_->Step(actions);
    const std::span<const EpisodeEnd> finished = batch_->finished();
    if (finished.empty()) return 0;
    CheckFinished(*batch_, finished);
    for (std::size_t k = 0; k < finished.size(); ++k) ended_[k] = finished[k].env;
    const std::uint8_t *terminated = batch_->terminated().data(), *truncated = batch_->truncated().data();
    for (std::size_t i = 0; i < done_.size(); ++i) done_[i] = terminated[i] | truncated[i];
    return finished.size();
  }

  EnvEntry entry_;
  std::unique_ptr<EnvBatch> batch_;
  SettableBatch* settable_ = nullptr;
  std::vector<float> actions_;
  // Of the last step in which episodes ended: where that was, and in ascending order.
  std::vector<std::uint8_t> done_;
  std::vector<std::int64_t> ended_;
};

template <class T>
nb::object View(nb::handle owner, const void* data, const std::vector<std::size_t>& shape) {
  return nb::cast(
      nb::ndarray<nb::numpy, const T>(static_cast<const T*>(data), shape.size(), shape.data(), owner));
}

nb::object Rows(nb::handle owner, const Vec& vec, std::span<const std::byte> rows) {
  std::vector<std::size_t> shape{vec.done().size()};
  for (const int n : vec.spec().obs.shape) shape.push_back(static_cast<std::size_t>(n));
  return vec.spec().obs.type == ObsType::kUint8 ? View<std::uint8_t>(owner, rows.data(), shape)
                                                : View<float>(owner, rows.data(), shape);
}

nb::object Masks(nb::handle owner, const Vec& vec, std::span<const std::uint8_t> masks) {
  if (masks.empty()) return nb::none();
  return View<std::uint8_t>(owner, masks.data(), {vec.done().size(), masks.size() / vec.done().size()});
}

nb::object Flags(nb::handle owner, std::span<const std::uint8_t> flags) {
  static_assert(sizeof(bool) == 1);
  return View<bool>(owner, flags.data(), {flags.size()});
}

// Where everything lies: (obs, rewards, terminated, truncated, done, ended, final_obs, masks, final_masks).
nb::tuple Views(nb::handle self) {
  const Vec& vec = nb::cast<const Vec&>(self);
  const EnvBatch& batch = vec.batch();
  const std::vector<std::size_t> each{vec.done().size()};
  return nb::make_tuple(Rows(self, vec, batch.obs()), View<float>(self, batch.rewards().data(), each),
                        Flags(self, batch.terminated()), Flags(self, batch.truncated()),
                        Flags(self, vec.done()), View<std::int64_t>(self, vec.ended().data(), each),
                        Rows(self, vec, batch.final_obs()), Masks(self, vec, batch.masks()),
                        Masks(self, vec, batch.final_masks()));
}

}  // namespace

void AddVec(nb::module_& m) {
  nb::class_<Vec>(m, "Vec")
      .def(nb::init<const std::string&, int, const Texts&, const std::vector<std::string>&>())
      .def_prop_ro("spec", &Vec::Spec)
      .def_prop_ro("takes_seeds", &Vec::takes_seeds)
      .def("reset", &Vec::Reset)
      .def("reset_each", &Vec::ResetEach)
      .def("step", &Vec::StepChoices, nb::arg("actions").noconvert())
      .def("step", &Vec::StepNumbers, nb::arg("actions").noconvert())
      .def("views", [](nb::handle_t<Vec> self) { return Views(self); })
      .def_prop_ro("fixed", &Vec::fixed)
      .def("state", &Vec::StateOf)
      .def("set_state", &Vec::SetState);
}

}  // namespace trireme::python
