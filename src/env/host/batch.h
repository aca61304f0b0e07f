// A batch whose copies are stepped by host processes: some by each, all at once.
//
// Seeds: the first episode of copy i after Reset is reset with a seed that is a function of (seed, purpose,
// first_id + i) alone, later ones without, as Gymnasium has it; so the bits depend neither on the hosts nor on how
// copies are batched. A copy that has failed is made anew and begins with another seed, which counts its failures.
//
// A copy that raises, does not answer or takes its process down ends its episode as truncated, with its last good
// observation as the final one and no reward, and so do the others of its process. One that breaks the rules (another
// shape, numbers that are not finite) ends the run: StepEnd throws Error that names copy and step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/env/env.h"
#include "trireme/env/host/layout.h"
#include "trireme/env/host/pool.h"
#include "trireme/env/host/shared_memory.h"

namespace trireme {

// What is asked of observations that are floats: of each element of a row. Those that are not finite are refused;
// those outside are allowed and said once.
struct ObsBounds {
  std::vector<float> low, high;
};

class HostedBatch final : public EnvBatch, private EnvSnapshots, private EnvPictures {
 public:
  // Makes the copies, with pictures where there are any in a second. Throws Error.
  HostedBatch(std::shared_ptr<HostPool> pool, const EnvSpec& spec, const EnvFacts& facts,
              std::shared_ptr<const ObsBounds> bounds, int size, double pictures_per_second = 0);
  ~HostedBatch() override;

  const EnvSpec& spec() const override { return spec_; }
  int size() const override { return size_; }
  void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) override;
  void StepBegin(std::span<const float> actions) override;
  void StepEnd() override;
  std::span<const std::byte> obs() const override { return {Obs(0), size_ * obs_bytes_}; }
  std::span<const std::byte> final_obs() const override { return {FinalObs(0), size_ * obs_bytes_}; }
  std::span<const std::uint8_t> masks() const override { return {Masks(0), size_ * choices_}; }
  std::span<const std::uint8_t> final_masks() const override { return {FinalMasks(0), size_ * choices_}; }
  std::span<const float> rewards() const override { return {Rewards(), static_cast<std::size_t>(size_)}; }
  std::span<const std::uint8_t> terminated() const override {
    return {Terminated(), static_cast<std::size_t>(size_)};
  }
  std::span<const std::uint8_t> truncated() const override {
    return {Truncated(), static_cast<std::size_t>(size_)};
  }
  std::span<const EpisodeEnd> finished() const override { return finished_; }
  EnvSnapshots* snapshots() override { return can_be_saved_ ? this : nullptr; }

  EnvPictures* pictures() override { return pictures_per_second_ > 0 ? this : nullptr; }

 private:
  void Save(StateWriter& out, const std::string& scope) const override;
  void Load(const StateReader& in, const std::string& scope) override;
  double per_second() const override { return pictures_per_second_; }
  void Draw(int env, Picture& out) override;

  struct Part {
    int host = 0;
    std::uint32_t number = 0;  // of the pool
    std::shared_ptr<HostProcess> process;
    HostPart* words = nullptr;
    std::shared_ptr<ServedPart> served;        // what others of `process` see of it, once it is open
    bool sent = false;                         // a command that was not awaited
    std::uint32_t failures = 0, warnings = 0;  // that were counted
  };

  template <class T>
  T* At(std::uint64_t offset) const {
    return reinterpret_cast<T*>(memory_->data() + offset);
  }
  const HostSegment& header() const { return *At<HostSegment>(0); }
  std::byte* Obs(std::size_t i) const { return At<std::byte>(header().obs_at) + i * obs_bytes_; }
  std::byte* FinalObs(std::size_t i) const { return At<std::byte>(header().final_obs_at) + i * obs_bytes_; }
  std::uint8_t* Masks(std::size_t i) const { return At<std::uint8_t>(header().masks_at) + i * choices_; }
  std::uint8_t* FinalMasks(std::size_t i) const {
    return At<std::uint8_t>(header().final_masks_at) + i * choices_;
  }
  float* Rewards() const { return At<float>(header().rewards_at); }
  std::uint8_t* Terminated() const { return At<std::uint8_t>(header().terminated_at); }
  std::uint8_t* Truncated() const { return At<std::uint8_t>(header().truncated_at); }
  bool Pending(std::size_t i) const;
  void SetReward(std::size_t i, float reward);

  void Lay();
  void WriteSeeds(const Part& part);
  // Throws HostLost, also where the host cannot make the copies.
  void Open(Part& part);
  void OpenElsewhere(Part& part, std::string reason);
  // Has the host carry something out; unless it is lost, which Await then says.
  void Command(Part& part, HostCommand command);
  // Blocks until it was. Returns why the host is lost, or nothing.
  std::string Await(Part& part);
  // The copies of a part whose host is lost end their episodes, as far as they have not, and begin others elsewhere.
  void EndEpisodes(const Part& part);
  void BeginElsewhere(Part& part, std::string reason);
  void FinishResets();
  void Hear(Part& part);
  void CheckNumbers();
  std::string Named(std::size_t i) const;  // "environment 3 at step 17 (step 5 of its episode)"

  const std::shared_ptr<HostPool> pool_;
  const EnvSpec spec_;
  const bool can_be_saved_;
  const std::shared_ptr<const ObsBounds> bounds_;
  const int size_;
  const double pictures_per_second_;
  const std::size_t obs_bytes_, choices_;
  std::shared_ptr<SharedMemory> memory_;
  mutable std::vector<Part> parts_;
  bool within_ = true;  // no observation has been outside its bounds

  std::uint64_t seed_ = 0;
  Purpose purpose_ = Purpose::kEnvReset;
  std::uint32_t first_id_ = 0;
  std::uint64_t steps_ = 0;              // since Reset
  std::vector<std::uint32_t> attempts_;  // times each copy was begun anew in a host
  std::vector<int> lengths_;             // of the episodes so far
  std::vector<double> returns_;
  std::vector<EpisodeEnd> finished_;
};

}  // namespace trireme
