// Several strings as one, each behind its length: how what several ranks brought travels together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

std::string Pack(std::vector<std::string> parts);
// Appends them. Requires what Pack made.
void Unpack(std::string_view packed, std::vector<std::string>& parts);

}  // namespace trireme
