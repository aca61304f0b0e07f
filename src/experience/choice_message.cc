#include "trireme/experience/choice_message.h"

#include "trireme/base/error.h"
#include "trireme/env/row.h"
#include "trireme/experience/message_parts.h"

namespace trireme {
namespace {

constexpr std::size_t kReadBefore = sizeof(ChoiceHeader::zero);

ChoiceHeader ReadHeader(Incoming& message, const char* what) {
  if (message.size() + kReadBefore < sizeof(ChoiceHeader))
    Fail("a message of {} bytes is no {}", message.size() + kReadBefore, what);
  ChoiceHeader header;
  ReadRest(message, header.zero, header);
  return header;
}

}  // namespace

Outgoing EncodeRequest(const ActionRequest& request, std::uint32_t first_env, std::size_t width) {
  const ChoiceHeader header{.step = request.step,
                            .first = static_cast<std::int32_t>(request.first_env - first_env),
                            .envs = request.n};
  const std::span<const float> rows(request.rows, width * request.n);
  MessageParts writer(sizeof header + rows.size_bytes());
  writer.Put(std::span(&header, 1));
  writer.Put(rows);
  return writer.Done();
}

void DecodeRequest(Incoming& message, const TrajectoryShape& shape, ChoiceRequest& to) {
  const ChoiceHeader header = ReadHeader(message, "request");
  if (header.envs < 1 || header.first < 0 || header.first > shape.envs - header.envs) {
    Fail("a request for {} environments from {}, of an actor that has {}", header.envs, header.first,
         shape.envs);
  }
  const RowLayout layout(shape.env);
  const auto n = static_cast<std::size_t>(header.envs);
  to.header = header;
  to.rows.resize(n * layout.width());
  to.actions.resize(n * shape.env.action.size());
  to.extra.resize(n);
  if (message.size() != to.rows.size() * sizeof(float))
    Fail("a request with {} bytes of observations, which have {}", message.size(),
         to.rows.size() * sizeof(float));
  ReadTo(message, std::span(to.rows));
  CheckRows(layout, to.rows, "a request");
}

Outgoing EncodeChoices(const ChoiceRequest& request) {
  MessageParts writer(sizeof request.header +
                      (request.actions.size() + request.extra.size()) * sizeof(float));
  writer.Put(std::span(&request.header, 1));
  for (const auto* values : {&request.actions, &request.extra}) writer.Put(std::span<const float>(*values));
  return writer.Done();
}

void DecodeChoices(Incoming& message, const ActionRequest& request, std::uint32_t first_env,
                   std::size_t action_size) {
  const ChoiceHeader header = ReadHeader(message, "answer");
  const auto n = static_cast<std::size_t>(request.n);
  if (header.step != request.step || header.envs != request.n ||
      header.first != static_cast<std::int32_t>(request.first_env - first_env) ||
      message.size() != n * (action_size + 1) * sizeof(float)) {
    Fail("the learner answers something else than it was asked");
  }
  ReadTo(message, std::span(request.actions, n * action_size));
  ReadTo(message, std::span(request.extra, n));
}

}  // namespace trireme
