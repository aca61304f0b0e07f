#include "trireme/server/client/server_communicator.h"

#include <algorithm>

#include "trireme/server/payload.h"

namespace trireme {

std::string ServerCommunicator::Collect(Collective operation, std::uint32_t flags, std::span<double> values,
                                        std::string_view bytes) {
  ServerLink& link = session_.link(0);
  link.Forget();
  Header header = link.MakeRequest(MessageKind::kCollect);
  header.operation = static_cast<std::uint32_t>(operation);
  header.flags |= flags;
  header.number = session_.next_operation();
  link.Ask(header, MakeMessage(header, {}, values, bytes));
  Header answer;
  Incoming& message = link.Answer(answer);
  session_.OnAnswer(0, answer);
  if (answer.flags & kBehind) throw FellBehind("the other workers are further");
  if (answer.kind != MessageKind::kCollected ||
      answer.doubles != (operation == Collective::kGather ? 0 : values.size())) {
    Fail("server {} answered operation {} with {} numbers where {} are due", link.address(), header.number,
         answer.doubles, values.size());
  }
  session_.OperationDone((answer.flags & kBoundary) != 0);
  message.Read(std::as_writable_bytes(values.first(answer.doubles)));
  return ReadText(message, answer);
}

// Sums are in double precision.
void ServerCommunicator::CollectFloats(Collective operation, std::uint32_t flags, std::span<float> values) {
  std::vector<double> doubles(values.begin(), values.end());
  Collect(operation, flags, doubles);
  std::copy(doubles.begin(), doubles.end(), values.begin());
}

void ServerCommunicator::Barrier() { Collect(Collective::kFirst, 0, {}); }
void ServerCommunicator::Broadcast(std::span<float> values) { CollectFloats(Collective::kFirst, 0, values); }
void ServerCommunicator::Broadcast(std::span<double> values) { Collect(Collective::kFirst, 0, values); }
void ServerCommunicator::AllReduceSum(std::span<float> values) { CollectFloats(Collective::kSum, 0, values); }
void ServerCommunicator::AllReduceSum(std::span<double> values) { Collect(Collective::kSum, 0, values); }

void ServerCommunicator::Broadcast(std::string& bytes) { bytes = Collect(Collective::kFirst, 0, {}, bytes); }

std::string ServerCommunicator::Boundary(std::string_view bytes, bool open) {
  return Collect(Collective::kFirst, open ? std::uint32_t{kBoundary} : 0, {}, bytes);
}

void ServerCommunicator::ReduceSum(std::span<float> values) {
  std::vector<float> sum(values.begin(), values.end());
  AllReduceSum(sum);
  if (session_.leads()) std::copy(sum.begin(), sum.end(), values.begin());
}

void ServerCommunicator::ReduceSum(std::span<double> values) {
  std::vector<double> sum(values.begin(), values.end());
  AllReduceSum(sum);
  if (session_.leads()) std::copy(sum.begin(), sum.end(), values.begin());
}

// Of ranks that did not take part: nothing.
std::vector<std::string> ServerCommunicator::Gather(std::string bytes) {
  const std::string gathered = Collect(Collective::kGather, 0, {}, bytes);
  if (gathered.empty()) return {};
  std::vector<std::string> all(size());
  for (auto& [rank, part] : DecodeGathered(gathered)) {
    if (rank >= size())
      Fail("server {} has gathered from a rank {} of {}", session_.link(0).address(), rank, size());
    all[rank] = std::move(part);
  }
  return all;
}

}  // namespace trireme
