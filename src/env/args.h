// Arguments of environments whose options nobody can list beforehand, such as those of a Python constructor:
// `--env-arg gravity=-9.8 --env-arg continuous=true`. Keys are any text; a value says its own type.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trireme {

// Nothing (null), true or false, a whole number, another number, or a text.
using EnvArgValue = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

struct EnvArg {
  std::string key;
  EnvArgValue value;

  bool operator==(const EnvArg&) const = default;
};
using EnvArgs = std::vector<EnvArg>;

// "key=value". Values are written as in TOML and JSON: null, true, 3, 1e-3; None, True and False as in Python
// are understood too. Anything else is a text, and so is what stands in quotes, which are left out: "3".
// Throws Error that begins with `origin`, what the user typed before it.
EnvArg ParseEnvArg(std::string_view assignment, std::string_view origin);
// The shortest assignment that is parsed as this argument.
std::string EnvArgText(const EnvArg& arg);

// In the order of their keys, so that the same arguments are the same list. Throws Error for a key that is there
// twice.
EnvArgs ParseEnvArgs(std::span<const std::string> assignments, std::string_view origin);

}  // namespace trireme
