// What a HostedBatch saves: states of its copies as their hosts give them, and what the batch itself knows.
#include <nlohmann/json.hpp>
#include <numeric>

#include "trireme/env/host/batch.h"

namespace trireme {

// A copy that cannot be saved just now, because its host is lost, is saved as nothing: it begins anew when it is loaded.
void HostedBatch::Save(StateWriter& out, const std::string& scope) const {
  const auto n = static_cast<std::size_t>(size_);
  std::string states;
  std::vector<std::uint64_t> sizes(n, 0);
  for (const Part& part : parts_) {
    try {
      const nlohmann::json message = {{"op", "save"}, {"part", part.number}};
      const HostProcess::Answer answer = part.process->Ask(message.dump(), HostWork::kStep);
      if (!answer.error.empty() || !answer.memory.valid()) continue;
      const auto said = nlohmann::json::parse(answer.text);
      const auto own = said.value("sizes", std::vector<std::uint64_t>());
      const std::string bytes = BytesOf(answer.memory.get());
      if (own.size() != part.words->count ||
          std::accumulate(own.begin(), own.end(), std::uint64_t{0}) != bytes.size()) {
        continue;
      }
      std::ranges::copy(own, sizes.begin() + part.words->first);
      states += bytes;
    } catch (const HostLost&) {
    }
  }
  out.PutText(scope + "/env", spec_.name);
  out.PutValue(scope + "/size", std::uint32_t(size_));
  out.PutValue(scope + "/seed", seed_);
  out.PutValue(scope + "/purpose", static_cast<std::uint32_t>(purpose_));
  out.PutValue(scope + "/first_id", first_id_);
  out.PutValue(scope + "/steps", steps_);
  out.Put<std::uint32_t>(scope + "/attempts", attempts_);
  out.Put<int>(scope + "/lengths", lengths_);
  out.Put<double>(scope + "/returns", returns_);
  out.Put<std::byte>(scope + "/obs", obs());
  out.Put<std::uint8_t>(scope + "/masks", masks());
  out.Put<std::uint64_t>(scope + "/sizes", sizes);
  out.PutText(scope + "/states", states);
}

void HostedBatch::Load(const StateReader& in, const std::string& scope) {
  if (in.GetText(scope + "/env") != spec_.name ||
      in.GetValue<std::uint32_t>(scope + "/size") != std::uint32_t(size_)) {
    Fail("the saved environments are {} of {}, not {} of {}", in.GetValue<std::uint32_t>(scope + "/size"),
         in.GetText(scope + "/env"), size_, spec_.name);
  }
  const auto n = static_cast<std::size_t>(size_);
  std::vector<std::uint64_t> sizes(n);
  in.Get<std::uint64_t>(scope + "/sizes", sizes);
  const std::string& states = in.GetText(scope + "/states");
  std::uint64_t total = 0;
  for (const std::uint64_t size : sizes) {
    if (size > states.size() - total) Fail("the saved environments of {} are damaged", scope);
    total += size;
  }
  seed_ = in.GetValue<std::uint64_t>(scope + "/seed");
  purpose_ = static_cast<Purpose>(in.GetValue<std::uint32_t>(scope + "/purpose"));
  first_id_ = in.GetValue<std::uint32_t>(scope + "/first_id");
  steps_ = in.GetValue<std::uint64_t>(scope + "/steps");
  in.Get<std::uint32_t>(scope + "/attempts", attempts_);
  in.Get<int>(scope + "/lengths", lengths_);
  in.Get<double>(scope + "/returns", returns_);
  finished_.clear();

  // Copies without a state begin another episode.
  std::vector<std::uint8_t> fresh(n);
  for (std::size_t i = 0; i < n; ++i) fresh[i] = sizes[i] == 0;
  for (std::size_t i = 0; i < n; ++i) attempts_[i] += fresh[i];
  std::uint64_t at = 0;
  for (Part& part : parts_) {
    const std::span<const std::uint64_t> own = std::span(sizes).subspan(part.words->first, part.words->count);
    const std::uint64_t bytes = std::accumulate(own.begin(), own.end(), std::uint64_t{0});
    WriteSeeds(part);
    const UniqueFd memory = MemoryOf(states.substr(at, bytes), "the saved environments");
    at += bytes;
    const nlohmann::json message = {
        {"op", "load"}, {"part", part.number}, {"sizes", std::vector<std::uint64_t>(own.begin(), own.end())}};
    const HostProcess::Answer answer = part.process->Ask(message.dump(), HostWork::kMaking, memory.get());
    if (!answer.error.empty()) Fail("{} cannot be loaded: {}", spec_.name, answer.error);
  }
  std::vector<std::byte> rows(n * obs_bytes_);
  in.Get<std::byte>(scope + "/obs", rows);
  std::vector<std::uint8_t> allowed(n * choices_);
  in.Get<std::uint8_t>(scope + "/masks", allowed);
  for (std::size_t i = 0; i < n; ++i) {
    if (fresh[i] != 0) {
      lengths_[i] = 0;
      returns_[i] = 0;
      continue;
    }
    std::memcpy(Obs(i), rows.data() + i * obs_bytes_, obs_bytes_);
    if (choices_ > 0) std::memcpy(Masks(i), allowed.data() + i * choices_, choices_);
  }
  pool_->SetBegun();
}

}  // namespace trireme
