// Tests that start parameter servers.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "run_util.h"

namespace trireme::testing {

class ServerCliTest : public CliTest {
 protected:
  // Starts a server that listens on a socket of its own and keeps its parts, and what it says.
  std::unique_ptr<Process> StartServer(const std::string& name, const Args& more = {}) {
    const Args command = Args{"server", "--listen", Address(name), "--dir", Path(name)} + more;
    auto server = std::make_unique<Process>(
        "/bin/sh", Args{"-c", "exec \"$@\" 2>>" + Path(name + ".log"), "sh", kBinary} + command);
    EXPECT_TRUE(server->RunsUntil([&] { return std::filesystem::exists(Path(name + ".sock")); }));
    return server;
  }
  bool Said(const std::string& name, const std::string& text) const {
    return ReadText(Path(name + ".log")).find(text) != std::string::npos;
  }
  std::string Address(const std::string& name) const { return "unix:" + Path(name + ".sock"); }
};

}  // namespace trireme::testing
