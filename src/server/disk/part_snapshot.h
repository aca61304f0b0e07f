// A part at one moment, in a file: docs/server-files.md describes the bytes. Thread safety: plain functions.
#pragma once

#include <filesystem>

#include "trireme/base/state.h"

namespace trireme {

// Replaces the file in one step: after a crash it is the old one or the new one. Throws Error.
void WriteSnapshot(const std::filesystem::path& path, StateWriter&& state);

// Throws Error that says what is wrong with the file and what to do.
StateReader ReadSnapshot(const std::filesystem::path& path);

}  // namespace trireme
