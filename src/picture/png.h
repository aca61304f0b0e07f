// Pictures as PNG files.
#pragma once

#include <string>

#include "trireme/picture/picture.h"

namespace trireme {

// The bytes of a file, the same for the same picture.
std::string EncodePng(const Picture& picture);

}  // namespace trireme
