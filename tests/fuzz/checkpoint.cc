// Checkpoints: the bytes of a file, sections of any content, and what algorithms, stores and environments
// make of sections that are not as they left them.
#include "trireme/train/checkpoint.h"

#include <filesystem>
#include <map>
#include <memory>

#include "input.h"
#include "trireme/algo/algorithm.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/comm/thread_communicator.h"
#include "trireme/env/registry.h"
#include "trireme/nn/make_executor.h"

namespace trireme::fuzz {
namespace {

enum Way { kFile, kSections, kEdited, kWays };

struct Kind {
  const char *algo, *env;
  std::vector<std::string> assignments;
};
const Kind kKinds[] = {
    {"ppo",
     "CartPole-v1",
     {"envs=2", "horizon=4", "minibatches=1", "hidden=[4]", "normalise_obs=true", "desired_kl=0.1"}},
    {"a2c", "CartPole-v1", {"envs=2", "horizon=4", "hidden=[4]"}},
    {"dqn",
     "CartPole-v1",
     {"envs=2", "hidden=[4]", "replay=64", "batch=8", "learning_starts=8", "prioritised=true", "n_step=3"}},
};

// One worker of a small run, as the trainer wires it.
class Learner {
 public:
  explicit Learner(const Kind& kind)
      : env_(FindEnv(kind.env)), settings_(FindAlgorithm(kind.algo).make_settings()) {
    ConfigFields fields;
    fields.Add(*settings_);
    for (const std::string& assignment : kind.assignments) fields.ApplyAssignment(assignment, "fuzz");
    network_ = std::make_unique<Network>(settings_->MakeNetwork(env_.spec));
    executor_ = MakeExecutor(*network_);
    std::vector<float> params(network_->param_count());
    network_->Initialise(1, params);
    store_ = MakeAllReduceStore(comm_, settings_->optimizer(), params);
    algorithm_ = settings_->Make({.env = env_,
                                  .executor = *executor_,
                                  .store = *store_,
                                  .seed = 1,
                                  .shards = 1,
                                  .first_shard = 0,
                                  .own_shards = 1});
  }

  std::string Save() {
    MetricRow row;
    for (int i = 0; i < 4; ++i) algorithm_->Iterate(0, row);
    StateWriter out;
    algorithm_->SaveShards(out);
    algorithm_->SaveCommon(out);
    store_->Save(out);
    return std::move(out).Encode();
  }
  void Load(const StateReader& in) {
    store_->Load(in);
    algorithm_->LoadCommon(in);
    algorithm_->LoadShards(in);
  }

 private:
  EnvEntry env_;
  std::unique_ptr<AlgorithmSettings> settings_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Executor> executor_;
  ThreadGroup group_{1};
  ThreadCommunicator comm_{group_, 0};
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Algorithm> algorithm_;
};

const std::string& GoodState(std::size_t kind) {
  static std::map<std::size_t, std::string> states;
  std::string& state = states[kind];
  if (state.empty()) state = Learner(kKinds[kind]).Save();
  return state;
}

// Names and contents, as StateWriter::Encode writes them.
std::vector<std::pair<std::string, std::string>> SectionsOf(std::string_view encoded) {
  std::vector<std::pair<std::string, std::string>> sections;
  Input in(reinterpret_cast<const std::uint8_t*>(encoded.data()), encoded.size());
  const auto take = [&] {
    std::string bytes;
    for (std::uint64_t left = in.Number(8); left > 0; --left) bytes.push_back(static_cast<char>(in.Byte()));
    return bytes;
  };
  while (!in.empty()) {
    std::string name = take();
    sections.emplace_back(std::move(name), take());
  }
  return sections;
}

void Edited(Input& in) {
  const std::size_t kind = in.Choice(std::size(kKinds));
  auto sections = SectionsOf(GoodState(kind));
  for (int edits = 1 + in.Choice(4); edits > 0; --edits) {
    auto& [name, bytes] = sections[in.Byte() % sections.size()];
    const std::size_t at = bytes.empty() ? 0 : in.Number(2) % bytes.size();
    switch (in.Choice(4)) {
      case 0:
        bytes.replace(at, std::min<std::size_t>(8, bytes.size() - at),
                      InputWriter().Number(in.Number(8), 8).str().substr(0, bytes.size() - at));
        break;
      case 1:
        bytes.resize(in.Number(2));
        break;
      case 2:
        name = in.Text();
        break;
      case 3:
        bytes = in.Text();
        break;
    }
  }
  InputWriter encoded;
  for (const auto& [name, bytes] : sections) {
    encoded.Number(name.size(), 8).Rest(name).Number(bytes.size(), 8).Rest(bytes);
  }
  Learner(kKinds[kind]).Load(StateReader(encoded.str()));
}

void Sections(const std::string& bytes) {
  const StateReader reader(bytes);
  const std::string again = reader.Encode();
  TRIREME_CHECK(StateReader(again).Encode() == again);
  StateWriter writer;
  writer.PutText("a", "taken");
  writer.Merge(bytes, "b/");
  writer.Merge(bytes);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  StateWriter state;
  state.PutText("name", "text");
  state.PutValue<double>("shard/0/value", 1.5);
  const ScratchFolder folder;
  const std::string encoded = state.Encode();
  WriteCheckpoint(folder.path(), 7, std::move(state));
  std::vector<std::pair<std::string, std::string>> seeds = {
      {"file", InputWriter().Byte(kFile).Rest(ReadFile(folder.path() / "checkpoint-7.trireme")).str()},
      {"sections", InputWriter().Byte(kSections).Rest(encoded).str()}};
  for (int kind = 0; kind < 3; ++kind) {
    for (int way = 0; way < 4; ++way) {
      InputWriter edit;
      edit.Byte(kEdited)
          .Byte(kind)
          .Byte(0)
          .Byte(5 * way + 1)
          .Number(3, 2)
          .Byte(way)
          .Number(6, way == 0 ? 8 : 2);
      seeds.emplace_back("edited-" + std::to_string(kind) + "-" + std::to_string(way),
                         edit.Rest("abcdef").str());
    }
  }
  return seeds;
}

}  // namespace trireme::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme::fuzz;
  static const trireme::ScratchFolder folder;
  Input in(data, size);
  try {
    switch (in.Choice(kWays)) {
      case kFile:
        WritePlainly(folder.path() / "checkpoint-1.trireme", in.Rest());
        trireme::ReadNewestCheckpoint(folder.path());
        break;
      case kSections:
        Sections(in.Rest());
        break;
      default:
        Edited(in);
    }
  } catch (const trireme::Error&) {
  }
  return 0;
}
