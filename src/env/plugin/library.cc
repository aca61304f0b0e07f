#include "trireme/env/plugin/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/env/plugin/call.h"

namespace trireme {
namespace {

constexpr const char* kSymbol = "trireme_env_plugin";
constexpr std::size_t kMost =
    1000;  // environments of a library, options of an environment, characters of a name

[[noreturn]] void RefuseVersion(const std::string& origin, std::uint32_t version) {
  Fail(
      "{} was made for version {} of the plug-in interface, and this is version {}: compile it again with "
      "the "
      "header of this trireme, which `trireme envs --plugin-header` prints",
      origin, version, TRIREME_PLUGIN_VERSION);
}

bool MadeOf(const char* text, std::string_view others) {
  const std::string_view view(text, strnlen(text, kMost + 1));
  return !view.empty() && view.size() <= kMost && std::ranges::all_of(view, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || others.find(c) != std::string_view::npos;
  });
}
constexpr std::string_view kInNames = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_-.";
constexpr std::string_view kInKeys = "_";

bool InRange(const trireme_option& option, double number) {
  if (!std::isfinite(number)) return false;
  return (option.low == 0 && option.high == 0) || (number >= option.low && number <= option.high);
}
std::int64_t WholeOf(double number) {
  return std::abs(number) < 9e18 ? static_cast<std::int64_t>(number) : 0;
}

void CheckOption(const trireme_option& option, const std::string& name) {
  if (option.key == nullptr || !MadeOf(option.key, kInKeys)) {
    Fail("{}: the name of an option is '{}', where a-z, 0-9 and _ are allowed", name, PluginText(option.key));
  }
  if (option.type < TRIREME_BOOL || option.type > TRIREME_TEXT) {
    Fail("{}: its option {} has the unknown type {}", name, option.key, option.type);
  }
  if (option.type == TRIREME_TEXT && option.default_text == nullptr) {
    Fail("{}: its option {} is a text without a default", name, option.key);
  }
  if (option.type != TRIREME_TEXT && !InRange(option, option.default_number)) {
    Fail("{}: the default of its option {} is {}, which is out of its range", name, option.key,
         option.default_number);
  }
}

void CheckTable(const trireme_env* env, const std::string& origin) {
  if (env == nullptr) Fail("{}: one of its environments is null", origin);
  if (env->name == nullptr || !MadeOf(env->name, kInNames)) {
    Fail("{}: the name of an environment is '{}', where letters, digits, _, - and . are allowed", origin,
         PluginText(env->name));
  }
  const std::string name = fmt::format("{}: {}", origin, env->name);
  if (env->help == nullptr) Fail("{} has no help, not even an empty text", name);
  const auto require = [&](bool there, const char* function) {
    if (!there) Fail("{} has no function {}", name, function);
  };
  require(env->describe != nullptr, "describe");
  require(env->create != nullptr, "create");
  require(env->destroy != nullptr, "destroy");
  require(env->reset != nullptr, "reset");
  require(env->step != nullptr, "step");
  const int saving = (env->state_bytes != nullptr) + (env->save != nullptr) + (env->load != nullptr);
  if (saving != 0 && saving != 3) {
    Fail("{} has {} of the functions state_bytes, save and load: it needs all or none", name, saving);
  }
  if (env->option_count > kMost || (env->option_count > 0 && env->options == nullptr)) {
    Fail("{} says that it has {} options, and does not show them", name, env->option_count);
  }
  for (std::uint32_t i = 0; i < env->option_count; ++i) CheckOption(env->options[i], name);
}

// What a library was told to do when it is loaded (-ffast-math: how to round) must not last.
void* Open(const std::filesystem::path& file, const std::string& origin) {
  const PluginCall call(origin.c_str(), "its own start-up");
  return dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
}

std::string RangeText(const trireme_option& option) {
  if (option.low == 0 && option.high == 0) return "";
  return fmt::format(" from {} to {}", option.low, option.high);
}
std::string TypeText(const trireme_option& option) {
  switch (option.type) {
    case TRIREME_BOOL:
      return "true or false";
    case TRIREME_INT:
      return "a whole number" + RangeText(option);
    case TRIREME_FLOAT:
      return "a number" + RangeText(option);
    default:
      return "a text";
  }
}

// False where the argument is not what the option takes.
bool ReadValue(const trireme_option& option, const EnvArgValue& given, trireme_value& value,
               std::string& text) {
  if (option.type == TRIREME_TEXT) {
    if (const auto* chosen = std::get_if<std::string>(&given)) {
      text = *chosen;
      return true;
    }
    return false;
  }
  if (const auto* flag = std::get_if<bool>(&given); flag != nullptr && option.type == TRIREME_BOOL) {
    value.number = *flag ? 1 : 0;
    value.whole = *flag ? 1 : 0;
    return true;
  }
  if (option.type == TRIREME_BOOL) return false;
  if (const auto* whole = std::get_if<std::int64_t>(&given)) {
    value.number = static_cast<double>(*whole);
    value.whole = *whole;
    return InRange(option, value.number);
  }
  const auto* number = std::get_if<double>(&given);
  if (number == nullptr || option.type != TRIREME_FLOAT) return false;
  value.number = *number;
  value.whole = WholeOf(*number);
  return InRange(option, *number);
}

ActionSpace ActionsOf(const trireme_spec& spec, const std::string& origin) {
  if (spec.action_size < 1 || spec.action_size > TRIREME_MAX_ACTION) {
    Fail("{}: its actions have {} numbers, where from 1 to {} are possible", origin, spec.action_size,
         int{TRIREME_MAX_ACTION});
  }
  const auto n = static_cast<std::size_t>(spec.action_size);
  switch (spec.action_type) {
    case TRIREME_DISCRETE:
      return {.kind = ActionKind::kDiscrete, .parts = {spec.choices, spec.choices + n}};
    case TRIREME_MULTI_DISCRETE:
      return ActionSpace::MultiDiscrete({spec.choices, spec.choices + n});
    case TRIREME_BOX:
      return ActionSpace::Box({spec.low, spec.low + n}, {spec.high, spec.high + n});
    default:
      Fail("{}: its actions are of the unknown type {}", origin, spec.action_type);
  }
}

ObsSpec ObsOf(const trireme_spec& spec, const std::string& origin) {
  if (spec.obs_type != TRIREME_FLOAT32 && spec.obs_type != TRIREME_UINT8) {
    Fail("{}: its observations are of the unknown type {}", origin, spec.obs_type);
  }
  if (spec.obs_dims < 1 || spec.obs_dims > TRIREME_MAX_DIMS) {
    Fail("{}: its observations have {} dimensions, where from 1 to {} are possible", origin, spec.obs_dims,
         int{TRIREME_MAX_DIMS});
  }
  return {.shape = {spec.obs_shape, spec.obs_shape + spec.obs_dims},
          .type = spec.obs_type == TRIREME_FLOAT32 ? ObsType::kFloat32 : ObsType::kUint8};
}

}  // namespace

std::span<const trireme_env* const> CheckPlugin(const trireme_plugin* plugin, const std::string& origin) {
  if (plugin == nullptr) Fail("{}: {} returns null", origin, kSymbol);
  if (plugin->version != TRIREME_PLUGIN_VERSION) RefuseVersion(origin, plugin->version);
  const auto expect = [&](std::uint32_t size, std::size_t expected, const char* what) {
    if (size == expected) return;
    Fail(
        "{}: its {} has {} bytes, and in version {} of the plug-in interface it has {}: compile it again "
        "with the "
        "header of this trireme, which `trireme envs --plugin-header` prints",
        origin, what, size, TRIREME_PLUGIN_VERSION, expected);
  };
  expect(plugin->size, sizeof(trireme_plugin), "trireme_plugin");
  expect(plugin->env_size, sizeof(trireme_env), "trireme_env");
  expect(plugin->spec_size, sizeof(trireme_spec), "trireme_spec");
  if (plugin->env_count < 1 || plugin->env_count > kMost || plugin->envs == nullptr) {
    Fail("{} says that it has {} environments, and does not show them", origin, plugin->env_count);
  }
  const std::span envs(plugin->envs, plugin->env_count);
  for (const trireme_env* env : envs) CheckTable(env, origin);
  return envs;
}

std::span<const trireme_env* const> LoadPlugin(const std::filesystem::path& file, const std::string& origin) {
  const CrashNotes notes;
  TellExits(nullptr);
  void* handle = Open(file, origin);
  if (handle == nullptr) Fail("{} cannot be loaded as a shared library: {}", origin, PluginText(dlerror()));
  TellExits(handle);
  const auto table = reinterpret_cast<const trireme_plugin* (*)()>(dlsym(handle, kSymbol));
  if (table == nullptr) {
    Fail("{} is no plug-in: it does not export {}, which TRIREME_PLUGIN(...) in env_plugin.h defines", origin,
         kSymbol);
  }
  const PluginCall call(origin.c_str(), kSymbol);
  return CheckPlugin(table(), origin);
}

PluginValues::PluginValues(const trireme_env& env, const EnvArgs& args, const std::string& origin)
    : texts_(env.option_count), values_(env.option_count) {
  std::vector<std::string> keys;
  for (std::uint32_t i = 0; i < env.option_count; ++i) {
    const trireme_option& option = env.options[i];
    keys.emplace_back(option.key);
    if (option.type == TRIREME_TEXT) texts_[i] = option.default_text;
    values_[i].number = option.default_number;
    values_[i].whole = WholeOf(option.default_number);
  }
  for (const EnvArg& arg : args) {
    const auto at = std::ranges::find(keys, arg.key);
    if (at == keys.end()) {
      Fail("{} has no option '{}'.{} `trireme envs {}` lists them", origin, arg.key,
           SuggestNearest(arg.key, keys), origin);
    }
    const auto i = static_cast<std::size_t>(at - keys.begin());
    if (!ReadValue(env.options[i], arg.value, values_[i], texts_[i])) {
      Fail("{}: --env-arg {}: expected {}", origin, EnvArgText(arg), TypeText(env.options[i]));
    }
  }
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    values_[i].text = env.options[i].type == TRIREME_TEXT ? texts_[i].c_str() : nullptr;
  }
}

std::string DescribeOptions(const trireme_env& env) {
  std::string text;
  for (std::uint32_t i = 0; i < env.option_count; ++i) {
    const trireme_option& option = env.options[i];
    std::string standard = fmt::format("{}", option.default_number);
    if (option.type == TRIREME_BOOL) standard = option.default_number != 0 ? "true" : "false";
    if (option.type == TRIREME_TEXT) standard = fmt::format("\"{}\"", PluginText(option.default_text));
    text += fmt::format("  {:<24} {:<24} {:<12} {}\n", option.key, TypeText(option), standard,
                        option.help == nullptr ? "" : PluginText(option.help));
  }
  return text;
}

PluginFacts DescribePlugin(const trireme_env& env, const PluginValues& values, const std::string& origin) {
  const CrashNotes notes;
  trireme_spec spec = {};
  spec.reward_threshold = std::numeric_limits<double>::quiet_NaN();
  spec.reproducible = 1;
  spec.snapshots = 1;
  CallPlugin(origin, "describe", [&] { return env.describe(values.data(), &spec); });
  PluginFacts facts{.spec = {.name = origin,
                             .help = PluginText(env.help),
                             .obs = ObsOf(spec, origin),
                             .action = ActionsOf(spec, origin),
                             .masks = spec.masks != 0,
                             .max_episode_steps = spec.max_episode_steps},
                    .reproducible = spec.reproducible != 0,
                    .snapshots = spec.snapshots != 0 && env.save != nullptr};
  if (!std::isnan(spec.reward_threshold)) facts.spec.reward_threshold = spec.reward_threshold;
  CheckSpec(facts.spec);
  return facts;
}

}  // namespace trireme
