// The secret that both ends of a stream share.
#pragma once

#include <string>

namespace trireme {

// Throws Error for a token that cannot be sent.
void CheckToken(const std::string& token);

// Whether `a` and `b` are the same, in a time that tells nothing about how much of them is.
bool SameSecret(const std::string& a, const std::string& b);

}  // namespace trireme
