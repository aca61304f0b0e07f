// What a trial process does: trains with the settings of its order on each of its seeds (seed_relay.h), reports at rungs, and says
// how it ended (trial_order.h).
#pragma once

namespace trireme {

// The whole life of such a process, whose end of the socket is `socket`. Returns its exit code.
int RunTrial(int socket);

}  // namespace trireme
