// Addresses as users write them: "host:port" or "unix:/path".
#pragma once

#include <string>

namespace trireme {

// Throws Error unless `address` has one of the two forms.
void CheckAddress(const std::string& address);

// Makes way for a server at `address`: removes a Unix socket that nobody listens on any more. Throws Error
// when somebody does, or when something else has that name.
void RemoveStaleSocket(const std::string& address);

// Why nobody can listen at `address`, found by trying: "address already in use".
std::string WhyNotListen(const std::string& address);

// Where a client comes from, in our form, from gRPC's ("ipv4:10.0.0.1:555").
std::string PeerAddress(const std::string& uri);

}  // namespace trireme
