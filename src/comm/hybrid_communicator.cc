#include "trireme/comm/hybrid_communicator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/pack.h"

namespace trireme {
HybridCommunicator::HybridCommunicator(Communicator& inside, Communicator* between, int group, int groups)
    : inside_(inside), between_(between), group_(group), groups_(groups) {
  if (!leader()) return;
  TRIREME_CHECK(between_ != nullptr && between_->rank() == group && between_->size() == groups);
  before_ = between_->traffic();
}

void HybridCommunicator::Barrier() {
  inside_.Barrier();
  if (leader()) between_->Barrier();
  inside_.Barrier();
}

template <class Values>
void HybridCommunicator::BroadcastAny(Values& values) {
  if (leader()) between_->Broadcast(values);
  inside_.Broadcast(values);
}

// The leaders' own values come back, except at rank 0.
template <class T>
void HybridCommunicator::ReduceAny(std::span<T> values) {
  std::vector<T> own;
  if (leader() && rank() != 0) own.assign(values.begin(), values.end());
  inside_.ReduceSum(values);
  if (leader()) between_->ReduceSum(values);
  std::copy(own.begin(), own.end(), values.begin());
}

template <class T>
void HybridCommunicator::AllReduceAny(std::span<T> values) {
  if (groups_ == 1) return inside_.AllReduceSum(values);
  if (inside_.size() == 1) return between_->AllReduceSum(values);
  inside_.ReduceSum(values);
  if (leader()) between_->AllReduceSum(values);
  inside_.Broadcast(values);
}

std::vector<std::string> HybridCommunicator::Gather(std::string bytes) {
  std::vector<std::string> own = inside_.Gather(std::move(bytes));
  if (!leader() || groups_ == 1) return own;
  const std::vector<std::string> packed = between_->Gather(Pack(std::move(own)));
  std::vector<std::string> all;
  for (const std::string& group : packed) Unpack(group, all);
  return all;
}

std::vector<std::string> HybridCommunicator::AllGather(std::string bytes) {
  std::vector<std::string> own = inside_.Gather(std::move(bytes));
  std::string packed;
  if (leader()) packed = Pack(groups_ == 1 ? std::move(own) : between_->AllGather(Pack(std::move(own))));
  inside_.Broadcast(packed);
  std::vector<std::string> parts, all;
  Unpack(packed, parts);
  if (groups_ == 1) return parts;
  for (const std::string& group : parts) Unpack(group, all);
  return all;
}

Traffic HybridCommunicator::traffic() const {
  Traffic traffic = inside_.traffic();
  if (!leader()) return traffic;
  traffic += between_->traffic();
  traffic -= before_;
  return traffic;
}

std::vector<ProcessLink> HybridCommunicator::links() const {
  std::vector<ProcessLink> all = inside_.links();
  if (!leader()) return all;
  for (const ProcessLink& link : between_->links()) all.push_back(link);
  return all;
}

void HybridCommunicator::Abort() {
  inside_.Abort();
  if (between_ != nullptr) between_->Abort();
}

template void HybridCommunicator::BroadcastAny(std::span<float>&);
template void HybridCommunicator::BroadcastAny(std::span<double>&);
template void HybridCommunicator::BroadcastAny(std::string&);
template void HybridCommunicator::ReduceAny(std::span<float>);
template void HybridCommunicator::ReduceAny(std::span<double>);
template void HybridCommunicator::AllReduceAny(std::span<float>);
template void HybridCommunicator::AllReduceAny(std::span<double>);

}  // namespace trireme
