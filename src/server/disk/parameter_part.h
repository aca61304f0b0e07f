// A part of the flat parameters with its optimizer, as a server holds it: survives the death of the process.
//
// With a folder, every change is written to a log before it is made, so that what Apply() and Note() have
// returned from is found again by Recover() after a kill -9 at any moment: the newest snapshot, then the log
// again from there. Recovered parameters and moments have the bits they had. `durable` extends this to the
// loss of power: the log is on the disk, not only with the kernel, before a call returns.
// docs/server-files.md describes the files. Without a folder nothing is written and nothing survives.
//
// Belongs to one thread. Errors of the disk throw Error before anything has changed; what was logged before
// stays valid, and the same call may be made again once the cause is gone. Snapshots are written by a thread
// of the part's own; a change waits for one only when changes come faster than the disk can take them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/codec/codec.h"
#include "trireme/optim/optimizer.h"

namespace trireme {

// What a part is made of. `identity` is text that the server compares with that of later workers.
struct PartSetup {
  std::string identity;
  OptimizerSettings optimizer;
  std::uint64_t begin = 0, size = 0;  // which of all parameters
  // The codec that tells workers in step how their parameters change (codec/difference.h), or kNoCodec. With one,
  // params() are what all workers hold, and the optimizer works on exact parameters behind them, the last of
  // the moments.
  std::string compress = std::string(kNoCodec);
};

struct PartStorage {
  std::filesystem::path folder;  // empty: memory only
  bool durable = false;
  std::filesystem::path audit;  // empty: none. A line "version worker sequence" for every update
  // A snapshot is made when the log is longer than this, and has several changes. The folder takes up about
  // twice as much, and two snapshots, at most.
  std::uint64_t log_bytes = 16 << 20;
  // Recover what can be recovered where acknowledged changes are lost, instead of refusing.
  bool accept_loss = false;
};

// A group of parameters as an update treats it, in numbers of all parameters, not of this part. A rate of 0
// leaves it untouched, its moments with it.
struct PartGroup {
  std::uint64_t begin = 0, end = 0;
  float learning_rate = 0;
  float scale = 1;  // of its gradient
  bool operator==(const PartGroup&) const = default;
};

// One change. `worker` and `sequence` are the update's id: a worker's sequences grow, from 1.
struct PartUpdate {
  std::uint64_t worker = 0, sequence = 0;
  std::int64_t steps = 0;  // environment steps it stands for
  float scale = 1;         // of the gradient, where no group is
  float learning_rate = 0;
  GroupList<PartGroup> groups = {};  // in ascending order, and they do not overlap
  // With a mark above that of all updates before, what the part holds before this update is kept: GoBack() returns to
  // it. Marks never fall.
  std::optional<std::uint64_t> mark = {};
};

class ParameterPart {
 public:
  // `moments`: those of the optimizer, one behind the other, and with a codec exact parameters behind them; or
  // empty for zeros, and for exact parameters that are `params`. `updates`: made so far.
  ParameterPart(const PartSetup& setup, const PartStorage& storage, std::span<const float> params,
                std::span<const float> moments = {}, std::uint64_t updates = 0, std::int64_t steps = 0);
  // The part that lives in storage.folder, or none. Throws Error when the files are damaged or cut, unless
  // they prove that no more than an unfinished write at the end of the log is gone.
  static std::unique_ptr<ParameterPart> Recover(const PartStorage& storage);
  ~ParameterPart();

  // What was odd about the files, or given up with `accept_loss`; empty: nothing.
  const std::string& remark() const;
  const PartSetup& setup() const;
  std::span<const float> params() const;
  std::span<const float> moments(std::size_t m) const;
  std::size_t moment_count() const;
  // With a codec: the message that made params() of what they were before the last update. Empty: there is none.
  std::span<const std::byte> delta() const;
  std::uint64_t version() const;  // changes of params() so far, GoBack() among them: it only grows
  std::uint64_t updates() const;  // that have made params(): those that were undone do not count
  std::int64_t steps() const;     // environment steps of all updates ever made

  // The last sequence of a worker, 0 if there was none. The 4096 workers that made updates last are
  // remembered.
  std::uint64_t LastSequence(std::uint64_t worker) const;
  // Requires a sequence above LastSequence(worker) and gradient.size() == params().size(), finite.
  // `note`, if not empty, replaces the note of name "update" in the same step. Allocates nothing but for
  // snapshots, for notes that become longer, and at the first mark.
  void Apply(const PartUpdate& update, std::span<const float> gradient, const std::string& note = {});

  // Undoes the updates since the one that came with this mark first, with the optimizer and the note "update"; that
  // is a version of its own. False, and nothing has changed: there are none, or the last mark is another.
  bool GoBack(std::uint64_t mark);
  // Of the updates so far.
  std::optional<std::uint64_t> last_mark() const;

  // Small facts of the server's that live and die with the part.
  void Note(const std::string& name, const std::string& value);
  const std::string& NoteOf(const std::string& name) const;  // empty if there is none

 private:
  class Impl;
  explicit ParameterPart(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
