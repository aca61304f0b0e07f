// A batch of an environment of a plug-in. The plug-in steps; this is what decides when episodes begin and end, and checks in
// every step what was written.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/env/env.h"
#include "trireme/env/plugin/buffers.h"
#include "trireme/env/plugin/call.h"
#include "trireme/env/plugin/library.h"

namespace trireme {

// An environment of a plug-in with certain options: what all its batches share.
struct PluginEnv {
  PluginEnv(const trireme_env& env, const EnvArgs& args, const std::string& name)
      : table(env), values(env, args, name), facts(DescribePlugin(env, values, name)) {}

  const trireme_env table;
  const PluginValues values;
  PluginFacts facts;
  const CrashNotes notes;
};

// The environment as the rest of Trireme knows it. max_steps: instead of its own time limit.
EnvEntry PluginEntry(const trireme_env& env, const EnvArgs& args, const std::string& name,
                     std::optional<int> max_steps = {});

class PluginBatch final : public EnvBatch, private EnvSnapshots {
 public:
  // Throws Error when the plug-in makes none.
  PluginBatch(std::shared_ptr<const PluginEnv> env, int size);

  const EnvSpec& spec() const override { return env_->facts.spec; }
  int size() const override { return static_cast<int>(size_); }
  void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) override;
  // Throws Error that names the plug-in, and the copy, for what breaks the rules.
  void StepBegin(std::span<const float> actions) override;
  void StepEnd() override {}

  std::span<const std::byte> obs() const override { return buffers_.obs(); }
  std::span<const std::byte> final_obs() const override { return final_obs_.span(); }
  std::span<const std::uint8_t> masks() const override { return buffers_.masks(); }
  std::span<const std::uint8_t> final_masks() const override { return final_masks_.span(); }
  std::span<const float> rewards() const override { return buffers_.rewards(); }
  std::span<const std::uint8_t> terminated() const override { return buffers_.terminated(); }
  std::span<const std::uint8_t> truncated() const override { return buffers_.truncated(); }
  std::span<const EpisodeEnd> finished() const override { return finished_; }
  EnvSnapshots* snapshots() override { return env_->facts.snapshots ? this : nullptr; }

 private:
  void Save(StateWriter& out, const std::string& scope) const override;
  void Load(const StateReader& in, const std::string& scope) override;

  struct Destroy {
    const PluginEnv* env;
    void operator()(void* batch) const;
  };

  const std::string& name() const { return env_->facts.spec.name; }
  void FinishEpisodes();
  // Copy i, whose row in episode_ is set, is the next of those that ResetStarting starts.
  void StartNext(std::size_t i);
  void ResetStarting();
  void CheckGuards(const char* function) const;
  void CheckObs(std::size_t i, const char* function) const;
  void CheckMask(std::size_t i, const char* function) const;
  [[noreturn]] void RefuseStep() const;
  [[noreturn]] void Refuse(const char* function, const std::string& what) const;

  const std::shared_ptr<const PluginEnv> env_;
  const std::size_t size_;
  const std::size_t obs_bytes_, mask_bytes_;  // of a row
  const std::size_t obs_floats_;              // of a row; 0 where observations are bytes
  std::uint64_t seed_ = 0;
  Purpose purpose_ = Purpose::kTest;
  std::uint32_t first_id_ = 0;
  std::uint64_t steps_ = 0;  // since the last Reset or Load
  GuardedBuffers buffers_;
  AlignedBuffer<std::byte> final_obs_;
  AlignedBuffer<std::uint8_t> final_masks_;
  AlignedBuffer<double> returns_;         // rewards of the current episode so far; all these: [size]
  AlignedBuffer<std::int32_t> elapsed_;   // its steps
  AlignedBuffer<std::uint64_t> episode_;  // its number
  std::vector<EpisodeEnd> finished_;
  std::uint32_t starting_count_ = 0;
  std::vector<std::uint32_t> starting_;  // [size], of which starting_count_ copies are started anew
  std::vector<trireme_random> streams_;  // theirs
  std::unique_ptr<void, Destroy> batch_;
};

}  // namespace trireme
