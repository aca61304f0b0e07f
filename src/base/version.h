// Which version this is.
#pragma once

namespace trireme {

// "0.1.0"
const char* Version();

}  // namespace trireme
