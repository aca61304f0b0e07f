#include "trireme/env/gym/source.h"

#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/base/system.h"
#include "trireme/env/folder.h"
#include "trireme/env/gym/description.h"
#include "trireme/env/gym/host_script.h"
#include "trireme/env/gym/python.h"
#include "trireme/env/host/batch.h"
#include "trireme/env/host/pool.h"

namespace trireme {
namespace {

using nlohmann::json;

constexpr const char* kBootstrap = R"(import os, sys
if sys.version_info < (3, 9):
    os.write(3, b'{"error": "Python %d.%d is too old: 3.9 or newer is needed"}' % sys.version_info[:2])
    sys.exit(0)
exec(compile(open(4, encoding='utf-8').read(), 'trireme_host.py', 'exec'))
)";

// Sets of strings have the same order in every process: what goes over one gives the same bits again.
constexpr const char* kHashSeed = "PYTHONHASHSEED=0";

HostProgram ProgramOf(const Python& python, const EnvFolder& folder) {
  return {
      .command = {python.program, "-u", "-X", "faulthandler", "-c", kBootstrap, std::to_string(::getpid())},
      .script = kGymHostScript,
      .variables = {kHashSeed},
      .folder = folder.Now()};
}

struct ToJson {
  json operator()(std::monostate) const { return nullptr; }
  template <class T>
  json operator()(const T& value) const {
    return value;
  }
};

std::string StartMessage(const std::string& source, const std::string& name, const EnvArgs& args,
                         int max_steps) {
  json arguments = json::object();
  for (const EnvArg& arg : args) arguments[arg.key] = std::visit(ToJson(), arg.value);
  const json env = {{"source", source}, {"name", name}, {"args", arguments}, {"max_steps", max_steps}};
  return json{{"op", "start"}, {"protocol", kHostVersion}, {"env", env}}.dump();
}

// Says what to do where packages are missing.
template <class Function>
auto Explained(const Python& python, Function&& function) {
  try {
    return function();
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const char* package : {"gymnasium", "numpy"}) {
      if (text.find(fmt::format("No module named '{}'", package)) == std::string::npos) continue;
      const bool named = python.install.ends_with("install");
      Fail("No module named '{}' for {}: `{}{}` installs it", package, python.program, python.install,
           named ? fmt::format(" {}", package) : "");
    }
    throw;
  }
}

class PythonOptions final : public EnvOptions {
 public:
  PythonOptions(std::string source, std::string name) : source_(std::move(source)), name_(std::move(name)) {}

  void Fields(ConfigFields& field) override {
    field("max_steps", max_steps_, "time limit of an episode; 0: as the environment has it", Between(0, 1e9));
    field("hosts", hosts_, "processes that step environments; 0: one for each processor (--env-hosts)",
          Between(0, 1024));
    field("timeout_s", timeout_s_,
          "seconds after which an environment that does not answer is given up; 0: never "
          "(--env-timeout)",
          Between(0, 1e6));
    field("max_failures", max_failures_,
          "failures of environments that a run goes on after: those that raise, do not answer or end their "
          "process",
          Between(0, 1e9));
    field("python", python_,
          "the Python that runs them; empty: TRIREME_PYTHON, the virtual environment, or python3");
    folder_.AddTo(field);
  }
  void FillIn() override { folder_.FillIn(); }
  bool identifies(const std::string& field) const override { return field == "max_steps" || field == "args"; }
  bool takes_args() const override { return true; }

  EnvEntry Entry(const EnvArgs& args) const override {
    const std::string full = source_ + ":" + name_;
    const Python python = FindPython(python_);
    const HostLimits limits{.hosts = hosts_ > 0 ? hosts_ : UsableProcessors(),
                            .timeout_s = timeout_s_,
                            .max_failures = max_failures_};
    return Explained(python, [&]() -> EnvEntry {
      const auto pool = std::make_shared<HostPool>(full, ProgramOf(python, folder_),
                                                   StartMessage(source_, name_, args, max_steps_), limits);
      pool->AskFirst(R"({"op":"prepare"})");
      const HostProcess::Answer described = pool->AskFirst(R"({"op":"describe"})", HostWork::kStep);
      HostedEnv env = ParseDescription(full, BytesOf(described.memory.get()));
      const auto bounds = std::make_shared<const ObsBounds>(std::move(env.bounds));
      const auto make = [pool, bounds, spec = env.spec, facts = env.facts](int size) {
        return std::make_unique<HostedBatch>(pool, spec, facts, bounds, size);
      };
      EnvEntry entry{
          .spec = env.spec, .facts = env.facts, .make = make, .options = nullptr, .processes = pool};
      if (const double rate = env.pictures_per_second; rate > 0) {
        entry.make_drawn = [pool, bounds, spec = env.spec, facts = env.facts, rate](int size) {
          return std::make_unique<HostedBatch>(pool, spec, facts, bounds, size, rate);
        };
      }
      return entry;
    });
  }

 private:
  const std::string source_, name_;
  int max_steps_ = 0;
  int hosts_ = 0;
  double timeout_s_ = 60;
  int max_failures_ = 100;
  std::string python_;
  EnvFolder folder_;
};

std::vector<EnvListing> ListGym() {
  const Python python = FindPython("");
  return Explained(python, [&] {
    HostPool pool("Gymnasium", ProgramOf(python, {}), StartMessage("gym", "", {}, 0), {.hosts = 1});
    std::vector<EnvListing> list;
    for (const json& row : json::parse(BytesOf(pool.AskFirst(R"({"op":"list"})").memory.get()))) {
      list.push_back({"gym:" + row.at(0).get<std::string>(), row.at(1).get<std::string>()});
    }
    return list;
  });
}

}  // namespace

EnvSource GymSource() {
  return {.prefix = "gym:",
          .help = "environments of Gymnasium, in host processes; needs Python (docs/gymnasium.md)",
          .options = [](const std::string& name) { return std::make_unique<PythonOptions>("gym", name); },
          .list = ListGym};
}

EnvSource PySource() {
  return {.prefix = "py:",
          .help = "a Python class: py:path/to/file.py:MyEnv, py:module:MyEnv",
          .options = [](const std::string& name) { return std::make_unique<PythonOptions>("py", name); }};
}

}  // namespace trireme
