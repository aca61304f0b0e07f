// How workers in step make one gradient of all of theirs.
//
// Thread safety: belongs to one worker. Sum may block on the others.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/state.h"
#include "trireme/comm/communicator.h"

namespace trireme {

class GradientSum {
 public:
  virtual ~GradientSum() = default;

  // `gradient`: that of `params` parameters, and statistics behind it. Both <- their sums over all workers, the same
  // bits on each. Statistics are exact; a gradient may be sent roughly if what is missing goes with later ones. Where
  // that of any worker is not finite the sum is not, on all workers, and nothing of it goes with later ones.
  virtual void Sum(std::span<float> gradient, std::size_t params) = 0;

  // Beyond what the communicators count.
  virtual Traffic traffic() const { return {}; }
  virtual double ResidualNorm() const { return 0; }
  // See ParameterStore.
  virtual void SaveOwn(StateWriter& /*out*/) const {}
  virtual std::string LoadOwn(const StateReader& in) = 0;
};

// Everything as it is, along the tree of the communicator.
std::unique_ptr<GradientSum> MakePlainSum(Communicator& comm);

// Threads of a process add up theirs as they are, along the tree. Then each process sends its sum to all others as a
// message of a codec, with error feedback; everybody decodes all messages, its own too, and adds them along
// the tree over processes. `inside`: between the threads of this process. `between`: its first thread's end
// between `groups` processes; others do not use it, and may have none. With one process it sends nothing and loses
// nothing.
std::unique_ptr<GradientSum> MakeCompressedSum(Communicator& inside, Communicator* between, int groups,
                                               std::string_view codec, std::size_t params);

}  // namespace trireme
