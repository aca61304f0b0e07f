// Messages that are text.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/rpc/transport.h"

namespace trireme {

inline Outgoing TextMessage(std::string_view text) {
  auto message = std::make_shared<AlignedBuffer<std::byte>>(text.size());
  std::ranges::copy(std::as_bytes(std::span(text)), message->begin());
  return message;
}

inline std::string ReadText(Incoming& message) {
  std::string text(message.size(), '\0');
  message.Read(std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace trireme
