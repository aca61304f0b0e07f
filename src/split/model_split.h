// How several workers compute one network together: a group of them, each with a part of the parameters.
//   tensor    every member holds some columns or rows of each layer (tensor_tower.h)
//   pipeline  every member holds some of the layers, a stage (pipeline_executor.h)
#pragma once

#include <string>
#include <string_view>

namespace trireme {

struct ModelSplit {
  enum class Kind { kNone, kTensor, kPipeline };
  static constexpr int kMostMembers = 64;

  Kind kind = Kind::kNone;
  int members = 1;  // workers of a group
  int micro_batches =
      8;  // pipeline: that a batch is cut into, if it has so many chunks of Tower::kChunk samples

  // "none", "tensor=2", "pipeline=2", "pipeline=4,micro_batches=16". Throws Error.
  static ModelSplit Parse(std::string_view text);
  std::string text() const;
  bool splits() const { return members > 1; }
};

}  // namespace trireme
