// Libraries that are loaded only when a run needs them, so that plain runs start without MPI, gRPC or libtorch.
//
// A plug-in is a shared library beside the program that exports factories as extern "C" functions:
//
//   extern "C" Transport* TriremeMakeGrpc();                                    // in the library
//   auto make = reinterpret_cast<Transport* (*)()>(PluginSymbol("libtrireme_grpc.so", "TriremeMakeGrpc",
//                                                               "gRPC"));       // in the program
//
// It is built from the same sources as the program; errors it throws are caught by the program as its own.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// Where libraries are looked for: in the folder that the environment variable TRIREME_PLUGINS names, beside the
// executable, in ../lib/trireme from there, and, where this code is part of libtrireme.so, in the folder trireme beside that.
std::vector<std::filesystem::path> PluginFolders();

// How most plug-ins come to be there, for errors.
inline constexpr const char* kPluginByMakeAll =
    "`make all` installs what it needs and builds it, and the Debian package trireme-plugins has it";

// The address of `symbol` in `library`, a file name, which is loaded at the first call and stays. `what_for` is what a
// user calls it ("MPI"), `how` says how to get it. Throws Error when it is not there or does not load. Thread safe.
void* PluginSymbol(const std::string& library, const std::string& symbol, const std::string& what_for,
                   const std::string& how = kPluginByMakeAll);

// The first such library in these folders, if there is one. Do not load it.
std::optional<std::filesystem::path> FindPlugin(const std::string& library);
inline bool HavePlugin(const std::string& library) { return FindPlugin(library).has_value(); }

// The libraries that the shared library or program in `file` says it needs, by name ("libfmt.so.9"), without loading
// it. Throws Error where it is none for this kind of machine.
std::vector<std::string> NeededLibraries(const std::filesystem::path& file);

}  // namespace trireme
