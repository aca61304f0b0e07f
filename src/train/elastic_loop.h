// Workers on parameter servers that move on their own: they share nothing but the servers, which count the
// steps, say who leads, and when the run has ended. They come and go as they like and leave nothing of their own
// in checkpoints.
#pragma once

#include <memory>

#include "trireme/server/client/server_store.h"
#include "trireme/train/worker_loop.h"

namespace trireme {

// All outlive the loop; `store` is that of `session`.
std::unique_ptr<WorkerLoop> MakeElasticLoop(Worker& worker, ServerSession& session, ServerStore& store);

}  // namespace trireme
