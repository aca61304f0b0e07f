// What a part holds in memory, and how a change changes it. Knows nothing of files: a part that is
// recovered makes the logged changes again with this same code, and so arrives at the same bits.
//
// Thread safety: none. Changes neither throw nor allocate.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/base/state.h"
#include "trireme/codec/difference.h"
#include "trireme/optim/optimizer.h"
#include "trireme/server/disk/last_sequences.h"
#include "trireme/server/disk/parameter_part.h"

namespace trireme {

class PartState {
 public:
  // The arguments are those of ParameterPart.
  PartState(const PartSetup& setup, std::span<const float> params, std::span<const float> moments,
            std::uint64_t updates, std::int64_t steps);
  // As saved. Throws Error when it does not fit together.
  explicit PartState(const StateReader& in);
  void Save(StateWriter& out) const;

  // p, moments <- rule(p, moments, scale * gradient). Bit for bit what an Optimizer makes of the same slice. With
  // a codec p are the exact parameters, and what workers hold goes towards them by one message.
  void Apply(const PartUpdate& update, std::span<const float> gradient) noexcept;
  // Returns to what was kept at the last mark. Requires one.
  void GoBack() noexcept;
  // Requires MakeRoomForNote for the same name and length before it.
  void SetNote(std::string_view name, std::string_view value) noexcept;
  // What a change needs memory for, so that it fails before the change has begun: a note, and what is kept at a mark.
  void MakeRoomForNote(std::string_view name, std::size_t length);
  void MakeRoomForMark();

  const PartSetup& setup() const { return setup_; }
  std::span<const float> params() const { return params_.span(); }
  std::span<const float> moments(std::size_t m) const { return moments_.at(m).span(); }
  std::size_t moment_count() const { return moments_.size(); }
  std::span<const std::byte> delta() const {
    return has_delta_ ? delta_.span() : std::span<const std::byte>();
  }
  std::uint64_t version() const { return version_; }
  std::uint64_t updates() const { return updates_; }
  std::optional<std::uint64_t> last_mark() const { return kept_.mark; }
  // Whether GoBack would change anything.
  bool ChangedSinceMark() const { return kept_.mark && kept_.version != version_; }
  std::int64_t steps() const { return steps_; }
  std::uint64_t LastSequence(std::uint64_t worker) const { return sequences_.Of(worker); }
  const std::string& NoteOf(std::string_view name) const;

 private:
  // What GoBack returns to.
  struct Kept {
    std::optional<std::uint64_t> mark;
    std::uint64_t version = 0, updates = 0;    // at that time; the version that went back to it, once one did
    std::vector<AlignedBuffer<float>> values;  // parameters, then moments
  };
  void MakeRoom();
  void Keep(std::uint64_t mark) noexcept;

  PartSetup setup_;
  OptimizerRule rule_;
  AlignedBuffer<float> params_;
  std::vector<AlignedBuffer<float>> moments_;  // those of the rule; with a codec exact parameters behind them
  std::unique_ptr<DifferenceCoder> coder_;     // null: none
  AlignedBuffer<std::byte> delta_;             // of the last update
  bool has_delta_ = false;
  std::uint64_t version_ = 0, updates_ = 0;
  std::int64_t steps_ = 0;
  Kept kept_;
  LastSequences sequences_;
  std::map<std::string, std::string, std::less<>> notes_;
};

}  // namespace trireme
