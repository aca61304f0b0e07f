#include "trireme/base/version.h"

namespace trireme {

const char* Version() { return TRIREME_VERSION; }

}  // namespace trireme
