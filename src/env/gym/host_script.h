// The text of host.py, and of what it is made of, put together when the program is built.
#pragma once

namespace trireme {

extern const char* const kGymHostScript;

}  // namespace trireme
