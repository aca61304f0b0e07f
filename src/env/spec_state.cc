#include "trireme/env/spec_state.h"

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr const char* kObsShape = "spec/obs_shape";
constexpr const char* kNote = "spec/note";

template <class T>
std::vector<T> GetAll(const StateReader& in, const std::string& name) {
  std::vector<T> values(in.GetText(name).size() / sizeof(T));
  in.Get<T>(name, values);
  return values;
}

template <class E>
E GetEnum(const StateReader& in, const std::string& name, E last) {
  const auto value = in.GetValue<std::uint8_t>(name);
  if (value > static_cast<std::uint8_t>(last))
    Fail("section '{}' holds {}, which means nothing", name, value);
  return static_cast<E>(value);
}

}  // namespace

void SaveSpec(const EnvSpec& spec, StateWriter& out) {
  out.PutText("spec/name", spec.name);
  out.Put<std::int32_t>(kObsShape, spec.obs.shape);
  out.PutValue<std::uint8_t>("spec/obs_type", static_cast<std::uint8_t>(spec.obs.type));
  out.PutValue<std::uint8_t>("spec/action_kind", static_cast<std::uint8_t>(spec.action.kind));
  out.Put<std::int32_t>("spec/action_parts", spec.action.parts);
  out.Put<float>("spec/action_low", spec.action.low);
  out.Put<float>("spec/action_high", spec.action.high);
  out.PutValue<std::uint8_t>("spec/masks", spec.masks);
  if (!spec.note.empty()) out.PutText(kNote, spec.note);
}

std::optional<EnvSpec> SavedSpec(const StateReader& in) {
  if (!in.Has(kObsShape)) return std::nullopt;
  EnvSpec spec{.name = in.GetText("spec/name"),
               .note = in.Has(kNote) ? in.GetText(kNote) : "",
               .obs = {.shape = GetAll<std::int32_t>(in, kObsShape),
                       .type = GetEnum(in, "spec/obs_type", ObsType::kUint8)},
               .action = {.kind = GetEnum(in, "spec/action_kind", ActionKind::kMultiDiscrete),
                          .parts = GetAll<std::int32_t>(in, "spec/action_parts"),
                          .low = GetAll<float>(in, "spec/action_low"),
                          .high = GetAll<float>(in, "spec/action_high")},
               .masks = in.GetValue<bool>("spec/masks")};
  CheckSpec(spec);
  return spec;
}

}  // namespace trireme
