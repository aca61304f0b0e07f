// Environments that are objects of this interpreter, stepped under its lock, by the main thread where that trains (caller.h):
// for what no other process could import.
//
// trireme._objects does what Gymnasium says (spaces, seeds, the order of reset and step); here is the memory it writes to, and
// the accounts of episodes. What environments raise goes through the library and comes out of train() as it is.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <variant>

#include "caller.h"
#include "module.h"
#include "trireme/base/error.h"
#include "trireme/env/registry.h"

namespace trireme::python {
namespace {

// Something of Python that is let go of from any thread.
using Object = std::shared_ptr<nb::object>;
Object Share(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* shared) {
            const nb::gil_scoped_acquire python;
            delete shared;
          }};
}

template <class T>
nb::object Writable(std::vector<T>& memory, std::size_t rows, std::size_t width) {
  const std::size_t shape[] = {rows, width};
  return nb::cast(nb::ndarray<nb::numpy, T>(memory.data(), 2, shape, nb::handle()), nb::rv_policy::reference);
}

class ObjectBatch final : public EnvBatch {
 public:
  // `source` is a trireme._objects.Source.
  ObjectBatch(const EnvSpec& spec, const nb::object& source, int size, std::shared_ptr<Caller> caller)
      : caller_(std::move(caller)),
        spec_(spec),
        n_(static_cast<std::size_t>(size)),
        obs_(n_ * spec.obs.bytes()),
        final_obs_(obs_.size()),
        masks_(spec.masks ? n_ * static_cast<std::size_t>(spec.action.choices()) : 0),
        final_masks_(masks_.size()),
        actions_(n_ * static_cast<std::size_t>(spec.action.size())),
        rewards_(n_),
        terminated_(n_),
        truncated_(n_),
        lengths_(n_),
        returns_(n_) {
    copies_ = Share(source.attr("make_copies")(
        size, Writable(actions_, n_, actions_.size() / n_), Writable(obs_, n_, spec.obs.bytes()),
        Writable(final_obs_, n_, spec.obs.bytes()), Writable(masks_, n_, masks_.size() / n_),
        Writable(final_masks_, n_, masks_.size() / n_), Writable(rewards_, n_, 1),
        Writable(terminated_, n_, 1), Writable(truncated_, n_, 1)));
    step_ = Share(copies_->attr("step"));
  }
  ~ObjectBatch() override {
    const auto close = [this] {
      try {
        copies_->attr("close")();
      } catch (nb::python_error& error) {
        error.discard_as_unraisable("closing an environment");
      }
    };
    InPython(caller_, close, true);
  }

  const EnvSpec& spec() const override { return spec_; }
  int size() const override { return static_cast<int>(n_); }

  void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) override {
    std::vector<std::uint32_t> seeds;
    for (std::size_t i = 0; i < n_; ++i) {
      const PhiloxBlock bits =
          Philox(seed, StreamCounter(purpose, first_id + static_cast<std::uint32_t>(i), 0, 0));
      seeds.push_back(bits[0] >> 1);  // generators take numbers from 0 to 2^31 - 1
    }
    Clear();
    std::ranges::fill(rewards_, 0.0f);
    std::ranges::fill(lengths_, 0);
    std::ranges::fill(returns_, 0.0);
    InPython(caller_, [&] { copies_->attr("reset")(seeds); });
  }

  void StepBegin(std::span<const float> actions) override {
    std::ranges::copy(actions, actions_.begin());
    Clear();
    InPython(caller_, [this] { (*step_)(); });
    for (std::size_t i = 0; i < n_; ++i) {
      ++lengths_[i];
      returns_[i] += rewards_[i];
      if (terminated_[i] == 0 && truncated_[i] == 0) continue;
      finished_.push_back({.env = static_cast<int>(i),
                           .length = lengths_[i],
                           .episode_return = returns_[i],
                           .terminated = terminated_[i] != 0});
      lengths_[i] = 0;
      returns_[i] = 0;
    }
  }
  void StepEnd() override {}

  std::span<const std::byte> obs() const override { return std::as_bytes(std::span(obs_)); }
  std::span<const std::byte> final_obs() const override { return std::as_bytes(std::span(final_obs_)); }
  std::span<const std::uint8_t> masks() const override { return masks_; }
  std::span<const std::uint8_t> final_masks() const override { return final_masks_; }
  std::span<const float> rewards() const override { return rewards_; }
  std::span<const std::uint8_t> terminated() const override { return terminated_; }
  std::span<const std::uint8_t> truncated() const override { return truncated_; }
  std::span<const EpisodeEnd> finished() const override { return finished_; }
  EnvSnapshots* snapshots() override { return nullptr; }

 private:
  void Clear() {
    std::ranges::fill(terminated_, 0);
    std::ranges::fill(truncated_, 0);
    finished_.clear();
  }

  const std::shared_ptr<Caller> caller_;
  const EnvSpec spec_;
  const std::size_t n_;
  std::vector<std::uint8_t> obs_, final_obs_, masks_, final_masks_;
  std::vector<float> actions_, rewards_;
  std::vector<std::uint8_t> terminated_, truncated_;
  std::vector<int> lengths_;  // of the episodes so far
  std::vector<double> returns_;
  std::vector<EpisodeEnd> finished_;
  Object copies_, step_;
};

EnvSpec SpecFrom(const std::string& name, const nb::dict& facts) {
  const auto get = [&]<class T>(const char* key, T) { return nb::cast<T>(facts[key]); };
  EnvSpec spec{
      .name = name, .help = "an environment of this interpreter", .note = get("note", std::string())};
  spec.obs = {.shape = get("obs_shape", std::vector<int>()),
              .type = get("obs_type", std::string()) == "uint8" ? ObsType::kUint8 : ObsType::kFloat32};
  const std::string kind = get("action_kind", std::string());
  const auto parts = get("action_parts", std::vector<int>());
  if (kind == "box") {
    spec.action =
        ActionSpace::Box(get("action_low", std::vector<float>()), get("action_high", std::vector<float>()));
  } else {
    spec.action = kind == "discrete" ? ActionSpace::Discrete(parts.at(0)) : ActionSpace::MultiDiscrete(parts);
  }
  spec.masks = get("masks", false);
  spec.max_episode_steps = get("max_episode_steps", 0);
  if (const nb::object threshold = facts["reward_threshold"]; !threshold.is_none()) {
    spec.reward_threshold = nb::cast<double>(threshold);
  }
  return spec;
}

struct ToPython {
  nb::object operator()(std::monostate) const { return nb::none(); }
  template <class T>
  nb::object operator()(const T& value) const {
    return nb::cast(value);
  }
};

class ObjectOptions final : public EnvOptions {
 public:
  explicit ObjectOptions(std::string name) : name_(kObjectPrefix + std::move(name)) {}
  void Fields(ConfigFields&) override {}
  bool takes_args() const override { return true; }
  EnvEntry Entry(const EnvArgs& args) const override {
    const std::shared_ptr<Caller> caller = Caller::Current();
    Object source;
    EnvSpec spec;
    InPython(caller, [&] {
      nb::dict arguments;
      for (const EnvArg& arg : args) arguments[arg.key.c_str()] = std::visit(ToPython(), arg.value);
      source = Share(nb::module_::import_("trireme._objects").attr("find")(name_, arguments));
      spec = SpecFrom(name_, nb::cast<nb::dict>(source->attr("describe")()));
    });
    return {.spec = spec, .facts = {.reproducible = true}, .make = [spec, source, caller](int size) {
              std::unique_ptr<ObjectBatch> batch;
              InPython(caller, [&] { batch = std::make_unique<ObjectBatch>(spec, *source, size, caller); });
              return batch;
            }};
  }

 private:
  std::string name_;
};

}  // namespace

void AddObjects(nb::module_&) {
  AddEnvSource({.prefix = kObjectPrefix,
                .help = "an environment of the Python that trains",
                .options = [](const std::string& name) { return std::make_unique<ObjectOptions>(name); }});
}

}  // namespace trireme::python
