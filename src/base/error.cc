#include "trireme/base/error.h"

#include <cstdio>
#include <cstdlib>

namespace trireme {

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr,
               "trireme: internal error at %s:%d: TRIREME_CHECK(%s) does not hold. Please report this.\n",
               file, line, condition);
  std::abort();
}

}  // namespace trireme
