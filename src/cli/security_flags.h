// How a command proves who it is to the other end of a connection, and whom it believes.
#pragma once

#include <string>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/parse.h"
#include "trireme/cli/command_line.h"
#include "trireme/rpc/transport.h"

namespace trireme {

struct SecurityFlags {
  std::string token_file, certificate, key, authority;

  void AddTo(CommandLine& command, const std::string& authority_help) {
    command.Option("--token-file", token_file, "file with a secret that both ends share");
    command.Option("--tls-cert", certificate, "certificate of this end (PEM)");
    command.Option("--tls-key", key, "its private key (PEM)");
    command.Option("--tls-ca", authority, authority_help + " (PEM)");
  }

  // Reads the files. Throws Error.
  Security Read() const {
    if (certificate.empty() != key.empty()) Fail("--tls-cert and --tls-key go together");
    const auto read = [](const std::string& path) { return path.empty() ? std::string() : ReadFile(path); };
    Security security{.token = std::string(Trim(read(token_file))),
                      .certificate = read(certificate),
                      .private_key = read(key),
                      .authority = read(authority),
                      .tls = !certificate.empty() || !authority.empty()};
    if (!token_file.empty() && security.token.empty())
      Fail("{} is empty: a token is a secret text", token_file);
    return security;
  }
};

}  // namespace trireme
