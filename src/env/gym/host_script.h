// The text of host.py, made from the file when the program is built.
#pragma once

namespace trireme {

extern const char* const kGymHostScript;

}  // namespace trireme
