#include "trireme/split/model_split.h"

#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/parse.h"

namespace trireme {
namespace {

[[noreturn]] void Refuse(std::string_view text) {
  Fail("model_parallel = {}: expected none, tensor=2 or pipeline=2,micro_batches=8, with 1 to {} workers",
       text, ModelSplit::kMostMembers);
}

int NumberIn(std::string_view digits, int most, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 1 || value > most) Refuse(text);
  return value;
}

}  // namespace

ModelSplit ModelSplit::Parse(std::string_view text) {
  ModelSplit split;
  if (Trim(text) == "none") return split;
  std::string_view rest = text;
  bool said = false;  // how many micro-batches
  for (bool first = true, more = true; more; first = false) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) Refuse(text);
    const std::string key(Trim(item.substr(0, equals)));
    const std::string value(Trim(item.substr(equals + 1)));
    if (first && (key == "tensor" || key == "pipeline")) {
      split.kind = key == "tensor" ? Kind::kTensor : Kind::kPipeline;
      split.members = NumberIn(value, kMostMembers, text);
    } else if (!first && key == "micro_batches" && split.kind == Kind::kPipeline && !said) {
      said = true;
      split.micro_batches = NumberIn(value, 1'000'000, text);
    } else {
      Refuse(text);
    }
  }
  if (split.members == 1) return {};
  return split;
}

std::string ModelSplit::text() const {
  switch (kind) {
    case Kind::kNone:
      return "none";
    case Kind::kTensor:
      return fmt::format("tensor={}", members);
    case Kind::kPipeline:
      return fmt::format("pipeline={},micro_batches={}", members, micro_batches);
  }
  return "?";
}

}  // namespace trireme
