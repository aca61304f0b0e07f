// Whole files in and out, with errors a user can act on.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// Throws Error when the file cannot be read.
std::string ReadFile(const std::filesystem::path& path);

// Writes to a temporary beside `path`, flushes it to disk, renames it over `path` and flushes the folder.
// After a failure or a crash at any moment `path` holds either what it held before or all of the parts, one
// after the other. Throws Error.
void WriteFileAtomically(const std::filesystem::path& path, std::initializer_list<std::string_view> parts);
inline void WriteFileAtomically(const std::filesystem::path& path, std::string_view content) {
  WriteFileAtomically(path, {content});
}

// Writes a file that is not there yet, and leaves none if that fails. It is neither atomic nor flushed to disk: for files
// of a folder that gets its name when all of them are there. Throws Error.
void WriteNewFile(const std::filesystem::path& path, std::string_view content);

// What is in a folder, in no order. Throws Error when it cannot be listed.
std::vector<std::filesystem::path> ListFolder(const std::filesystem::path& folder);

// Lower-case hexadecimal SHA-256.
std::string Sha256Hex(std::string_view bytes);

}  // namespace trireme
