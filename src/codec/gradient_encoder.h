// What one sends of its gradients, in fewer bytes, and what it has not sent yet: the sender's end of error
// feedback. A gradient is sent in parts, one to each receiver; a part has a residual of its own.
//
// Belongs to one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/state.h"
#include "trireme/codec/codec.h"

namespace trireme {

class GradientEncoder {
 public:
  // Where a part begins in the gradient, and its length. Parts follow each other.
  struct Part {
    std::size_t begin = 0, size = 0;
  };
  // Throws Error for unknown codecs.
  GradientEncoder(std::string_view codec, const std::vector<Part>& parts);

  const Codec& codec() const { return *codec_; }
  std::size_t bytes(int part) const { return codec_->bytes(parts_[part].size); }

  // `gradient` is the whole one. Requires message.size() == bytes(part). Throws Error when the gradient is not
  // finite; the residual is then as it was.
  void Encode(int part, std::span<const float> gradient, std::span<std::byte> message);
  // The receivers did without the message that Encode made of this gradient: the residual is as before it, but
  // for rounding.
  void TakeBack(int part, std::span<const float> gradient, std::span<const std::byte> message);
  // Adds everything that was not sent to `gradient`, and has sent it with that.
  void Flush(std::span<float> gradient);

  // Of the residuals of all parts.
  double ResidualNorm() const;
  // Spent in Encode so far.
  double seconds() const { return seconds_; }

  // The residuals of sender `rank`, in sections below "residual/<rank>/": part of a checkpoint that holds those
  // of all senders.
  void Save(int rank, StateWriter& out) const;
  // What a checkpoint of as many senders has for this one is taken over exactly. Of another number of senders,
  // the first one takes the sum of all, so that nothing is lost. Throws Error, at every sender alike, when those of any
  // are of another network or not finite.
  enum class Loaded { kNothing, kExactly, kSummed };
  Loaded Load(int rank, int ranks, const StateReader& in);
  // How many senders a checkpoint has residuals of, and their sum; empty without any. Throws Error.
  static int SavedIn(const StateReader& in);
  static std::vector<float> SumOfAll(const StateReader& in);

 private:
  std::string Layout() const;

  std::unique_ptr<Codec> codec_;
  std::vector<Part> parts_;
  std::vector<CodecState> states_;  // of the parts
  std::size_t size_ = 0;            // of the whole gradient
  double seconds_ = 0;
};

}  // namespace trireme
