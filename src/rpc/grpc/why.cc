#include "trireme/rpc/grpc/why.h"

#include <fmt/format.h>

#include <cctype>
#include <string_view>

namespace trireme {
namespace {

std::string LowerFirst(std::string_view text) {
  std::string lower(text);
  // "Connection refused" -> "connection refused", but "SSL ..." stays.
  if (lower.size() > 1 && std::islower(static_cast<unsigned char>(lower[1]))) {
    lower[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(lower[0])));
  }
  return lower;
}

std::string Cause(const grpc::Status& status) {
  const std::string& message = status.error_message();
  const auto has = [&](const char* part) { return message.find(part) != std::string::npos; };
  if (status.error_code() == grpc::StatusCode::CANCELLED) {
    return "the server dropped the stream, because its messages were not received here";
  }
  if (has("certificate verify failed")) {
    return "the server's certificate has expired, or is not signed by the given authority";
  }
  if (has("wrong version number")) return "the server does not use TLS";
  if (has("Failed parsing HTTP/2")) return "what listens there is not a server of Trireme";
  if (has("last error: ") && message.ends_with("Socket closed")) {
    return "the server ended the connection at once; both ends must use TLS or none, and the server may "
           "demand a "
           "certificate";
  }
  if (message.empty() || message == "Socket closed") return "the connection was lost";
  // gRPC nests messages: "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed
  // to connect to remote host: Connection refused". The cause is at the end.
  if (has("last error: ") || has("DNS resolution failed") || has("recvmsg") || has("sendmsg")) {
    const std::size_t colon = message.rfind(':');
    const std::size_t start = message.find_first_not_of(' ', colon + 1);
    if (start != std::string::npos) return LowerFirst(message.substr(start));
  }
  return LowerFirst(message);
}

}  // namespace

std::string Why(const std::string& address, const grpc::Status& status) {
  if (status.error_code() == kClosedByServer) return status.error_message();
  if (status.ok()) return fmt::format("{}: the server ended the stream", address);
  return fmt::format("{}: {}", address, Cause(status));
}

}  // namespace trireme
