#include "trireme/nn/make_executor.h"

#include "trireme/nn/fused_executor.h"

namespace trireme {

std::unique_ptr<Executor> MakeExecutor(const Network& network) {
  return std::make_unique<FusedExecutor>(network);
}

}  // namespace trireme
