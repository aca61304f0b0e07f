// Libraries that are loaded only when a run needs them, so that plain runs start without MPI or gRPC.
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
#include <string>
#include <vector>

namespace trireme {

// Where libraries are looked for: in the folder that the environment variable TRIREME_PLUGINS names, beside the
// executable, in ../lib/trireme from there, and, where this code is part of libtrireme.so, in the folder trireme beside that.
std::vector<std::filesystem::path> PluginFolders();

// The address of `symbol` in `library`, a file name, which is loaded at the first call and stays. `what_for` is what a
// user calls it ("MPI"). Throws Error when it is not there or does not load. Thread safe.
void* PluginSymbol(const std::string& library, const std::string& symbol, const std::string& what_for);

// Whether there is such a library. Does not load it.
bool HavePlugin(const std::string& library);

}  // namespace trireme
