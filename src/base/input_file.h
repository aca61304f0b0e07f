// Files that are read piece by piece.
#pragma once

#include <filesystem>
#include <fstream>
#include <istream>
#include <string>

namespace trireme {

// Throws Error when the file cannot be read.
std::ifstream OpenInputFile(const std::filesystem::path& path);

// Lower-case hexadecimal SHA-256 of all that is left in `in`.
std::string Sha256Hex(std::istream& in);

}  // namespace trireme
