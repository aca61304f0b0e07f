// Settings: TOML files and --set, those of a saved run, and what workers tell servers of a run.
#include <filesystem>
#include <memory>

#include "input.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/cli/run_flags.h"
#include "trireme/server/protocol.h"
#include "trireme/train/run_config.h"

namespace trireme::fuzz {
namespace {

enum Way { kNewRun, kSavedRun, kTerms, kWays };

// What was accepted can be written and read again, and is then the same.
void ExpectWritable(const RunSettings& settings) {
  const std::string text = settings.fields.ToToml();
  TRIREME_CHECK(ParseRunSettings(text, "again")->fields.ToToml() == text);
}

void NewRun(Input& in) {
  static const ScratchFolder folder;
  RunFlags flags;
  flags.env = in.Text();
  flags.algo = in.Text();
  for (int i = in.Choice(4); i > 0; --i) flags.assignments.push_back(in.Text());
  flags.config = (folder.path() / "config.toml").string();
  WritePlainly(flags.config, in.Rest());
  const std::unique_ptr<RunSettings> settings = SettingsOfNewRun(flags);
  settings->Resolve(1, 2);
  ExpectWritable(*settings);
}

void Terms(const std::string& text) {
  const Greeting greeting = Greeting::Decode(text);
  TRIREME_CHECK(Greeting::Decode(greeting.Encode()).Encode() == greeting.Encode());
  greeting.terms.CheckEqual(RunTerms::Decode(greeting.terms.Encode()));
  std::size_t sum = 0;
  for (int i = 0; i < greeting.terms.servers; ++i) sum += RangeOfServer(greeting.terms, i).size;
  TRIREME_CHECK(sum == greeting.terms.params);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  std::vector<std::pair<std::string, std::string>> seeds;
  for (const char* algo : {"ppo", "a2c", "dqn"}) {
    const RunSettings settings("CartPole-v1", algo);
    seeds.emplace_back(std::string("new-") + algo, InputWriter()
                                                       .Byte(kNewRun)
                                                       .Text("CartPole-v1")
                                                       .Text(algo)
                                                       .Byte(2)
                                                       .Text("hidden=[64, 32]")
                                                       .Text("steps=1e5")
                                                       .Rest("workers = 2\nseed = 3 # a comment\n")
                                                       .str());
    seeds.emplace_back(std::string("saved-") + algo,
                       InputWriter().Byte(kSavedRun).Rest(settings.fields.ToToml()).str());
  }
  seeds.emplace_back("new-system", InputWriter()
                                       .Byte(kNewRun)
                                       .Text("Acrobot-v1")
                                       .Text("a3c")
                                       .Byte(3)
                                       .Text("store=server")
                                       .Text("servers=2")
                                       .Text("schedule=0< 0>")
                                       .Rest("")
                                       .str());
  seeds.emplace_back(
      "toml", InputWriter()
                  .Byte(kNewRun)
                  .Text("Pendulum-v1")
                  .Text("ppo")
                  .Byte(0)
                  .Rest("hidden = [[1], [2]]\n[table]\na.b.c = {x = 1, y = [1979-05-27T07:32:00Z, nan]}\n"
                        "s = '''\nx'''\nt = \"\\u00e9\\n\"\n")
                  .str());
  const Greeting greeting{
      .worker = 5,
      .terms = {.version = "1", .env = "Env", .algo = "algo", .network = "net", .optimizer = {}}};
  seeds.emplace_back("terms", InputWriter().Byte(kTerms).Rest(greeting.Encode()).str());
  return seeds;
}

}  // namespace trireme::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme::fuzz;
  Input in(data, size);
  try {
    switch (in.Choice(kWays)) {
      case kNewRun:
        NewRun(in);
        break;
      case kSavedRun: {
        const auto settings = trireme::ParseRunSettings(in.Rest(), "input");
        ExpectWritable(*settings);
        settings->Resolve(1, 2);
        break;
      }
      default:
        Terms(in.Rest());
    }
  } catch (const trireme::Error&) {
  }
  return 0;
}
