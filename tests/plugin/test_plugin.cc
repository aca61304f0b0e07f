// The library that base/plugin_test.cc loads.
#include "trireme/base/error.h"

extern "C" int TriremeTestTwice(int value) {
  if (value < 0) trireme::Fail("negative: {}", value);
  return 2 * value;
}
