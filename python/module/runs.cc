// Training, and acting by what was learned. Everything of the library runs without the interpreter's lock.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <memory>
#include <mutex>
#include <optional>

#include "caller.h"
#include "interrupt.h"
#include "module.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/rng.h"
#include "trireme/base/system.h"
#include "trireme/train/run_config.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/standing.h"
#include "trireme/train/trained_policy.h"
#include "trireme/train/trainer.h"

namespace trireme::python {
namespace {

// ---- Training ----

// As train() of the package was called.
struct Request {
  std::string env, algo, config, out, resume;
  Texts settings;
  std::vector<std::string> env_args;
  bool progress = false;

  std::string Given(const std::string& key) const {
    const auto found = std::ranges::find(settings, key, &std::pair<std::string, std::string>::first);
    return found == settings.end() ? "" : found->second;
  }
};

void Apply(const Request& request, RunSettings& settings) {
  for (const auto& [key, value] : request.settings) settings.fields.Set(key, value, key);
  if (!request.Given("target").empty() && request.Given("stop_at_target").empty()) {
    settings.run.stop_at_target = true;
  }
  settings.SetEnvArgs(request.env_args, "env_args");
}

std::unique_ptr<RunSettings> NewSettings(const Request& request) {
  const std::string text = request.config.empty() ? "" : ReadFile(request.config);
  const auto choose = [&](const char* key, const std::string& given) {
    return given.empty() ? ReadTomlText(text, key, request.config) : given;
  };
  auto settings =
      SettingsFor({choose("env", request.env), choose("algo", request.algo),
                   choose("store", request.Given("store")), choose("pace", request.Given("pace"))});
  const RunConfig chosen = settings->run;
  settings->fields.ApplyToml(text, request.config);
  settings->run.env = chosen.env;
  settings->run.algo = chosen.algo;
  settings->run.store = chosen.store;
  Apply(request, *settings);
  return settings;
}

// More steps ask for more training, also of a run that had stopped at its target; who says a target means it.
std::unique_ptr<RunSettings> OldSettings(const Request& request, const RunFolder& folder) {
  auto settings = ReadRunSettings(folder);
  Apply(request, *settings);
  RunConfig& run = settings->run;
  if (run.stop_at_target && !request.Given("steps").empty() && request.Given("target").empty() &&
      request.Given("stop_at_target").empty()) {
    const std::optional<Standing> standing = ReadStanding(folder);
    if (standing && standing->reached && standing->steps < run.steps) run.stop_at_target = false;
  }
  return settings;
}

// Tells a callback of every row, and lets Python see to its signals. Whatever is raised ends the run, with a checkpoint,
// and is kept for later; so does an answer that is false, but for None.
class Reporter final : public TrainObserver {
 public:
  // `caller`: who does it, the main thread; null where that does not train.
  Reporter(nb::object callback, std::shared_ptr<Caller> caller, std::atomic<bool>& stop)
      : callback_(std::move(callback)),
        has_callback_(!callback_.is_none()),
        caller_(std::move(caller)),
        stop_(stop) {}

  void OnRow(const MetricRow& row) override {
    const double now_s = MonotonicSeconds();
    const bool signals = caller_ != nullptr && now_s - last_look_s_ > 0.1;
    if ((!has_callback_ && !signals) || stop_.load()) return;
    last_look_s_ = now_s;
    InPython(caller_, [&] {
      if (caller_ != nullptr) SeeToSignals();
      if (!has_callback_ || stop_.load()) return;
      Keep([&] {
        const nb::object answer = callback_(ToDict(row));
        if (answer.is_none()) return;
        const int goes_on = PyObject_IsTrue(answer.ptr());
        if (goes_on < 0) throw nb::python_error();
        if (goes_on == 0) stop_.store(true);
      });
    });
  }
  void OnEvaluation(std::int64_t, const Evaluation&) override {}
  void OnEnd(const TrainResult&) override {}

  // With the lock, in the main thread.
  void SeeToSignals() {
    Keep([] {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    });
  }

  void RaiseAgain() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  template <class Run>
  void Keep(const Run& run) {
    try {
      run();
    } catch (const nb::python_error&) {
      raised_ = std::current_exception();
      stop_.store(true);
    }
  }

  // What was measured; what was not is left out.
  static nb::dict ToDict(const MetricRow& row) {
    nb::dict dict;
    dict["step"] = row.step();
    dict["wall_s"] = row.wall_s();
    for (const auto& [name, value] : row.values()) {
      if (!std::isnan(value)) dict[name.c_str()] = value;
    }
    return dict;
  }

  nb::object callback_;
  const bool has_callback_;
  const std::shared_ptr<Caller> caller_;
  std::atomic<bool>& stop_;
  double last_look_s_ = 0;
  std::exception_ptr raised_;
};

// `about` is told the folder when it is known, and then how the run has ended.
void TrainRun(const Request& request, nb::object callback, bool main_thread, nb::dict about) {
  std::atomic<bool> stop{false};
  const auto caller = main_thread ? std::make_shared<Caller>() : nullptr;
  Reporter reporter(std::move(callback), caller, stop);
  std::optional<TrainResult> result;
  bool interrupted = false;
  {
    const Interrupt interrupt(main_thread, stop);
    {
      const nb::gil_scoped_release others_run;
      const Caller::Scope scope(caller);
      std::optional<RunFolder> folder;
      if (!request.resume.empty()) folder = RunFolder::Resume(request.resume);
      const std::unique_ptr<RunSettings> settings =
          folder ? OldSettings(request, *folder) : NewSettings(request);
      RunConfig& run = settings->run;
      const bool of_python = run.env.starts_with(kObjectPrefix);
      // Several workers would only take turns to step, for the same bits.
      if (of_python && run.in_step() && !run.store_entry().on_servers && run.workers == 0) run.workers = 1;
      settings->Resolve();
      if (!folder) folder = RunFolder::Create(request.out, run.Name(), settings->fields.ToToml());
      InPython(caller, [&] { about["folder"] = folder->path().string(); });
      TrainOptions options{.observer = &reporter, .json = !request.progress, .stop = &stop};
      if (request.progress) {
        options.say = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
      }
      const auto train = [&] { result = Train(*settings, *folder, options); };
      try {
        if (caller && of_python && (run.workers > 1 || run.actors > 0)) {
          Caller::Serve(caller, train, [&] { reporter.SeeToSignals(); });
        } else {
          train();
        }
      } catch (...) {
        folder->RemoveIfUnused();
        throw;
      }
    }
    interrupted = interrupt.came();
  }
  about["result"] = ResultJson(result->facts);
  about["interrupted"] = result->interrupted;
  reporter.RaiseAgain();
  // Python's own handler says what Ctrl-C means, now that there is a checkpoint.
  if (interrupted) {
    PyErr_SetInterrupt();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

// What a run is about, without claiming it.
nb::dict DescribeRun(const std::string& path) {
  const RunFolder folder = RunFolder::Open(path);
  const std::string text = folder.ReadConfig(), origin = (folder.path() / "config.toml").string();
  nb::dict about;
  about["env"] = ReadTomlText(text, "env", origin);
  about["algo"] = ReadTomlText(text, "algo", origin);
  return about;
}

// (name, type, value, what is allowed, what it means) of each setting that such a run begins with.
nb::list Settings(const std::string& env, const std::string& algo, const std::string& store) {
  const std::unique_ptr<RunSettings> settings = SettingsFor({env, algo, store, ""});
  nb::list list;
  for (const ConfigFields::Field& field : settings->fields.fields()) {
    list.append(nb::make_tuple(field.name, field.type, field.get(), field.allowed, field.doc));
  }
  return list;
}

// ---- Acting ----

constexpr EnumName<Which> kWhichNames[] = {{"best", Which::kBest}, {"last", Which::kLast}};

Which ParseWhich(const std::string& text) {
  Which which = Which::kBest;
  ConfigFields fields;
  fields("which", which, "policy", kWhichNames);
  fields.Set("which", text, "which");
  return which;
}

using Observations = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ObservedBytes = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Draw = std::pair<std::uint64_t, std::uint64_t>;  // seed, and which draw after it
using Actions = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// May be used from several threads at once.
class Policy {
 public:
  Policy(const std::string& path, const std::string& which) {
    const nb::gil_scoped_release others_run;
    const bool is_file = std::filesystem::is_regular_file(path);
    if (is_file && !std::filesystem::exists(std::filesystem::absolute(path).parent_path() / "config.toml")) {
      Fail("{} is not in the folder of a run: a policy is read with the config.toml beside it", path);
    }
    const RunFolder folder = RunFolder::Open(is_file ? std::filesystem::absolute(path).parent_path()
                                                     : std::filesystem::path(path));
    settings_ = ReadRunSettings(folder);
    const PolicyFiles files = is_file ? ReadPolicyFile(path) : ReadPolicy(folder, ParseWhich(which));
    ResolveToAct(files, *settings_);
    policy_ = std::make_unique<TrainedPolicy>(*settings_, files);
  }

  nb::dict Spec() const { return SpecToDict(spec()); }
  std::string algo() const { return settings_->run.algo; }
  std::string which() const { return policy_->which() == Which::kBest ? "best" : "last"; }
  std::int64_t steps() const { return policy_->progress().steps; }

  void Act(const Observations& obs, std::optional<ObservedBytes> masks, const Actions& actions,
           std::optional<Draw> draw) {
    const nb::gil_scoped_release others_run;
    ActFor(obs.data(), obs.shape(0), masks ? masks->data() : nullptr, actions.data(), draw);
  }
  void ActOnBytes(const ObservedBytes& obs, std::optional<ObservedBytes> masks, const Actions& actions,
                  std::optional<Draw> draw) {
    const nb::gil_scoped_release others_run;
    std::vector<float> scaled(obs.size());
    ObsToFloat(spec().obs, reinterpret_cast<const std::byte*>(obs.data()), obs.shape(0), scaled.data());
    ActFor(scaled.data(), obs.shape(0), masks ? masks->data() : nullptr, actions.data(), draw);
  }

 private:
  const EnvSpec& spec() const { return settings_->env().spec; }

  // Shapes were seen to by the package.
  void ActFor(const float* obs, std::size_t n, const std::uint8_t* masks, float* actions,
              const std::optional<Draw>& draw) {
    const auto obs_size = static_cast<std::size_t>(spec().obs.size());
    const auto action_size = static_cast<std::size_t>(spec().action.size());
    const auto choices = static_cast<std::size_t>(spec().action.choices());
    std::array<float, Algorithm::kMostActed> log_probs;
    const std::lock_guard lock(mutex_);
    for (std::size_t first = 0; first < n; first += Algorithm::kMostActed) {
      const int count = static_cast<int>(std::min<std::size_t>(Algorithm::kMostActed, n - first));
      const ActionRequest request{.seed = draw ? draw->first : 0,
                                  .step = draw ? draw->second : 0,
                                  .first_env = static_cast<std::uint32_t>(first),
                                  .n = count,
                                  .obs = obs + first * obs_size,
                                  .masks = masks == nullptr ? nullptr : masks + first * choices,
                                  .actions = actions + first * action_size,
                                  .extra = log_probs.data()};
      if (draw) {
        policy_->algorithm().Explore(request);
      } else {
        policy_->algorithm().Act({request.obs, count * obs_size}, request.masks, count,
                                 {request.actions, count * action_size});
      }
    }
  }

  std::unique_ptr<RunSettings> settings_;
  std::mutex mutex_;
  std::unique_ptr<TrainedPolicy> policy_;  // guarded by mutex_
};

}  // namespace

void AddRuns(nb::module_& m) {
  nb::class_<Request>(m, "Request")
      .def(nb::init<>())
      .def_rw("env", &Request::env)
      .def_rw("algo", &Request::algo)
      .def_rw("config", &Request::config)
      .def_rw("out", &Request::out)
      .def_rw("resume", &Request::resume)
      .def_rw("settings", &Request::settings)
      .def_rw("env_args", &Request::env_args)
      .def_rw("progress", &Request::progress);
  m.def("train", &TrainRun, nb::arg("request"), nb::arg("callback").none(), nb::arg("main_thread"),
        nb::arg("about"));
  m.def("describe_run", &DescribeRun);
  m.def("settings", &Settings);
  nb::class_<Policy>(m, "Policy")
      .def(nb::init<const std::string&, const std::string&>())
      .def_prop_ro("spec", &Policy::Spec)
      .def_prop_ro("algo", &Policy::algo)
      .def_prop_ro("which", &Policy::which)
      .def_prop_ro("steps", &Policy::steps)
      .def("act", &Policy::Act, nb::arg("obs").noconvert(), nb::arg("masks").none(),
           nb::arg("actions").noconvert(), nb::arg("draw").none())
      .def("act", &Policy::ActOnBytes, nb::arg("obs").noconvert(), nb::arg("masks").none(),
           nb::arg("actions").noconvert(), nb::arg("draw").none());
}

}  // namespace trireme::python
