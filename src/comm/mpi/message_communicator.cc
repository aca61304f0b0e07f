#include "trireme/comm/mpi/message_communicator.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/pack.h"
#include "trireme/comm/tree_sum.h"
#include "trireme/comm/wait.h"

namespace trireme {
namespace {

// to <- to + from, by the kernel that everybody adds with.
template <class T>
void Add(std::span<T> to, const T* from) {
  const T* operands[] = {to.data(), from};
  T* const sum[] = {to.data()};
  SimdCall<SumOperands<T>>(static_cast<const T* const*>(operands), 2, static_cast<T* const*>(sum), 1,
                           to.size());
}

}  // namespace

void CheckMpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  Fail("MPI failed to {}: {}", what, std::string(text, length));
}

MessageCommunicator::MessageCommunicator(MPI_Comm comm, std::vector<std::string> names, bool spin,
                                         double timeout_s, std::size_t longest, bool measured)
    : comm_(comm),
      names_(std::move(names)),
      spins_(spin ? kUsualSpins : 0),
      timeout_s_(timeout_s),
      longest_(longest) {
  TRIREME_CHECK(longest_ > 0 && longest_ <= kLongest && longest_ % sizeof(double) == 0);
  CheckMpi(MPI_Comm_rank(comm, &rank_), "tell the rank");
  CheckMpi(MPI_Comm_size(comm, &size_), "tell the size");
  TRIREME_CHECK(names_.size() == static_cast<std::size_t>(size_));
  links_.resize(size_);
  if (measured) MeasureLinks();
}

// All pairs at once, as in a sum. Messages go back and forth, and who sends first tells the other what it has
// measured: the other end, if it is late, finds messages that have arrived before it looked, as if they took no
// time. The pairs take turns from the lowest bit to the highest, so nobody waits in a circle.
void MessageCommunicator::MeasureLinks() {
  operation_ = "a trial of their link";
  links_.resize(size_);
  std::vector<ProcessLink> measured(size_);
  for (int bit = 1; bit < size_; bit *= 2) {
    const int partner = rank_ ^ bit;
    if (partner >= size_) continue;
    ProcessLink& link = measured[partner];
    link.SetName(names_[partner]);
    MeasureLink(link, [&](std::size_t size) {
      const std::span<std::byte> bytes = Scratch<std::byte>(size);
      if (rank_ < partner) Send(partner, bytes);
      Receive(partner, bytes);
      if (rank_ > partner) Send(partner, bytes);
    });
    double figures[] = {link.latency_s, link.bytes_per_s};
    if (rank_ < partner) {
      Send(partner, std::as_bytes(std::span(figures)));
    } else {
      Receive(partner, std::as_writable_bytes(std::span(figures)));
      link.latency_s = figures[0];
      link.bytes_per_s = figures[1];
    }
  }
  links_ = std::move(measured);  // without what the trials cost
}

Traffic MessageCommunicator::traffic() const {
  Traffic total;
  for (const ProcessLink& link : links_) {
    total += {.bytes = link.bytes, .messages = link.messages, .idle_s = link.waited_s};
  }
  return total;
}

std::vector<ProcessLink> MessageCommunicator::links() const {
  std::vector<ProcessLink> used;
  std::ranges::copy_if(links_, std::back_inserter(used), &ProcessLink::measured);
  return used;
}

MessageCommunicator::Pending MessageCommunicator::StartSend(int to, std::span<const std::byte> bytes,
                                                            int tag) {
  TRIREME_CHECK(bytes.size() <= longest_);
  if (post_->aborted.load()) throw Error("another worker failed");
  links_[to].messages += 1;
  links_[to].bytes += bytes.size();
  Pending pending{.peer = to};
  CheckMpi(
      MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, tag, comm_, &pending.request),
      "send");
  return pending;
}

MessageCommunicator::Pending MessageCommunicator::StartReceive(int from, std::span<std::byte> bytes,
                                                               int tag) {
  TRIREME_CHECK(bytes.size() <= longest_);
  Pending pending{.peer = from};
  CheckMpi(
      MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, from, tag, comm_, &pending.request),
      "receive");
  return pending;
}

bool MessageCommunicator::Done(Pending& pending) {
  int flag = 0;
  CheckMpi(MPI_Test(&pending.request, &flag, MPI_STATUS_IGNORE), "exchange messages");
  return flag != 0;
}

void MessageCommunicator::Wait(Pending& pending) {
  const auto done = [&] { return Done(pending); };
  links_[pending.peer].waited_s += WaitUntil(spins_, done, [&](double waited_s) {
    if (post_->aborted.load()) throw Error("another worker failed");
    if (waited_s < timeout_s_) return;
    Fail("{} waited {:.0f} s for {} in {}: it hangs, is stopped, does something else, or is cut off",
         names_[rank_], waited_s, names_[pending.peer], operation_);
  });
}

void MessageCommunicator::Send(int to, std::span<const std::byte> bytes) {
  while (true) {
    const std::size_t size = std::min(longest_, bytes.size());
    Pending pending = StartSend(to, bytes.first(size));
    Wait(pending);
    bytes = bytes.subspan(size);
    if (bytes.empty()) return;
  }
}

void MessageCommunicator::Receive(int from, std::span<std::byte> bytes) {
  while (true) {
    const std::size_t size = std::min(longest_, bytes.size());
    Pending pending = StartReceive(from, bytes.first(size));
    Wait(pending);
    bytes = bytes.subspan(size);
    if (bytes.empty()) return;
  }
}

void MessageCommunicator::Exchange(int partner, std::span<const std::byte> give, std::span<std::byte> take) {
  while (!give.empty() || !take.empty()) {
    const std::size_t sent = std::min(longest_, give.size()), got = std::min(longest_, take.size());
    Pending receive, send;
    if (got > 0) receive = StartReceive(partner, take.first(got));
    if (sent > 0) send = StartSend(partner, give.first(sent));
    if (got > 0) Wait(receive);
    if (sent > 0) Wait(send);
    give = give.subspan(sent);
    take = take.subspan(got);
  }
}

template <class T>
std::span<T> MessageCommunicator::Scratch(std::size_t size) {
  if (scratch_.size() < size * sizeof(T)) scratch_ = AlignedBuffer<std::byte>(size * sizeof(T));
  return {reinterpret_cast<T*>(scratch_.data()), size};
}

// After the round of distance d everyone has heard, directly or not, of the 2 d ranks before it.
void MessageCommunicator::Barrier() {
  operation_ = "a barrier";
  for (int distance = 1; distance < size_; distance *= 2) {
    Pending receive = StartReceive((rank_ - distance + size_) % size_, {});
    Pending send = StartSend((rank_ + distance) % size_, {});
    Wait(send);
    Wait(receive);
  }
}

// The tree of a reduction upside down: a rank gets the bytes from the rank without its lowest bit, and hands
// them to those that have one lower bit more.
void MessageCommunicator::BroadcastBytes(std::span<std::byte> bytes) {
  operation_ = "a broadcast";
  if (size_ == 1 || bytes.empty()) return;
  const auto top = std::bit_ceil(static_cast<unsigned>(size_));
  const unsigned lowest = rank_ == 0 ? top : static_cast<unsigned>(rank_ & -rank_);
  if (rank_ != 0) Receive(rank_ - static_cast<int>(lowest), bytes);
  for (unsigned bit = lowest / 2; bit > 0; bit /= 2) {
    if (const int to = rank_ + static_cast<int>(bit); to < size_) Send(to, bytes);
  }
}

void MessageCommunicator::Broadcast(std::string& bytes) {
  std::uint64_t length = bytes.size();
  BroadcastBytes(std::as_writable_bytes(std::span(&length, 1)));
  bytes.resize(length);
  BroadcastBytes(std::as_writable_bytes(std::span(bytes)));
}

// In round i the ranks with bit i set hand their partial sum to the rank without it and are done. Partial
// sums grow in place only at rank 0: the others keep their values.
template <class T>
void MessageCommunicator::Reduce(std::span<T> values) {
  operation_ = "a reduction";
  if (size_ == 1 || values.empty()) return;
  const std::span<T> scratch = Scratch<T>(2 * values.size());
  const std::span<T> received = scratch.first(values.size());
  std::span<T> sum = values;
  for (int bit = 1; bit < size_; bit *= 2) {
    if ((rank_ & bit) != 0) {
      Send(rank_ - bit, std::as_bytes(sum));
      return;
    }
    if (rank_ + bit >= size_) continue;
    Receive(rank_ + bit, std::as_writable_bytes(received));
    if (rank_ != 0 && sum.data() == values.data()) {
      sum = scratch.last(values.size());
      std::copy(values.begin(), values.end(), sum.begin());
    }
    Add(sum, received.data());
  }
}

template <class T>
void MessageCommunicator::AllReduce(std::span<T> values) {
  if (size_ == 1 || values.empty()) return;
  operation_ = "an all-reduction";
  if (!std::has_single_bit(static_cast<unsigned>(size_))) {
    Reduce(values);
    BroadcastBytes(std::as_writable_bytes(values));
  } else if (values.size_bytes() <= kSmall) {
    RecursiveDoubling(values);
  } else {
    HalvingAndGathering(values);
  }
}

template <class T>
void MessageCommunicator::RecursiveDoubling(std::span<T> values) {
  const std::span<T> received = Scratch<T>(values.size());
  for (int distance = 1; distance < size_; distance *= 2) {
    Exchange(rank_ ^ distance, std::as_bytes(values), std::as_writable_bytes(received));
    Add(values, received.data());
  }
}

// keep <- keep + what the partner gives, segment by segment. With `last`, each segment that is thereby
// finished goes to the partner at once, and give <- the partner's.
template <class T>
void MessageCommunicator::ExchangeAndAdd(int partner, std::span<T> give, std::span<T> keep, bool last) {
  const std::size_t elements = std::min(kSegment, longest_) / sizeof(T);
  const auto segment = [&](std::span<T> all, std::size_t i) {
    const std::size_t first = i * elements;
    return all.subspan(first, std::min(elements, all.size() - first));
  };
  const auto segments = [&](std::span<T> all) { return (all.size() + elements - 1) / elements; };
  const std::span<T> received = Scratch<T>(keep.size());
  sends_.clear();
  receives_.clear();
  for (std::size_t i = 0; i < segments(keep); ++i) {
    receives_.push_back(StartReceive(partner, std::as_writable_bytes(segment(received, i))));
  }
  for (std::size_t i = 0; i < segments(give); ++i) {
    sends_.push_back(StartSend(partner, std::as_bytes(segment(give, i))));
  }
  for (std::size_t i = 0; i < segments(keep); ++i) {
    Wait(receives_[i]);
    Add(segment(keep, i), segment(received, i).data());
    if (last) sends_.push_back(StartSend(partner, std::as_bytes(segment(keep, i))));
  }
  for (std::size_t i = 0; i < segments(give); ++i) {
    Wait(sends_[i]);
    if (last) receives_.push_back(StartReceive(partner, std::as_writable_bytes(segment(give, i))));
  }
  for (std::size_t i = segments(keep); i < receives_.size(); ++i) Wait(receives_[i]);
  for (std::size_t i = segments(give); i < sends_.size(); ++i) Wait(sends_[i]);
}

template <class T>
void MessageCommunicator::HalvingAndGathering(std::span<T> values) {
  struct Round {
    int partner;
    std::span<T> give, keep;
  };
  std::vector<Round> rounds;
  std::span<T> range = values;  // that this rank is adding up
  for (int distance = 1; distance < size_; distance *= 2) {
    const std::span<T> low = range.first(range.size() / 2), high = range.subspan(range.size() / 2);
    const bool upper = (rank_ & distance) != 0;
    const Round round{rank_ ^ distance, upper ? low : high, upper ? high : low};
    ExchangeAndAdd(round.partner, round.give, round.keep, 2 * distance == size_);
    range = round.keep;
    rounds.push_back(round);
  }
  for (rounds.pop_back(); !rounds.empty(); rounds.pop_back()) {
    const Round& round = rounds.back();
    Exchange(round.partner, std::as_bytes(round.keep), std::as_writable_bytes(round.give));
  }
}

std::vector<std::string> MessageCommunicator::Gather(std::string bytes) {
  operation_ = "a gathering";
  std::uint64_t length = bytes.size();
  if (rank_ != 0) {
    Send(0, std::as_bytes(std::span(&length, 1)));
    Send(0, std::as_bytes(std::span(bytes)));
    return {};
  }
  std::vector<std::string> all(size_);
  all[0] = std::move(bytes);
  for (int r = 1; r < size_; ++r) {
    Receive(r, std::as_writable_bytes(std::span(&length, 1)));
    all[r].resize(length);
    Receive(r, std::as_writable_bytes(std::span(all[r])));
  }
  return all;
}

std::vector<std::string> MessageCommunicator::AllGather(std::string bytes) {
  if (!std::has_single_bit(static_cast<unsigned>(size_))) return Communicator::AllGather(std::move(bytes));
  operation_ = "a gathering at all";
  std::vector<std::string> own;
  own.push_back(std::move(bytes));
  std::string packed = Pack(std::move(own)), theirs;
  for (int distance = 1; distance < size_; distance *= 2) {
    const int partner = rank_ ^ distance;
    std::uint64_t give = packed.size(), take = 0;
    Exchange(partner, std::as_bytes(std::span(&give, 1)), std::as_writable_bytes(std::span(&take, 1)));
    theirs.resize(take);
    Exchange(partner, std::as_bytes(std::span(packed)), std::as_writable_bytes(std::span(theirs)));
    packed = rank_ < partner ? packed + theirs : theirs + packed;
  }
  std::vector<std::string> all;
  Unpack(packed, all);
  return all;
}

// A copy is kept until MPI has done with it, which it is asked whenever another message is sent.
void MessageCommunicator::Send(int to, std::span<const float> values) {
  TRIREME_CHECK(to != rank_);
  std::erase_if(post_->outgoing, [&](Post::Outgoing& old) {
    return std::ranges::all_of(old.sends, [&](Pending& send) { return Done(send); });
  });
  post_->used = true;
  Post::Outgoing& out = post_->outgoing.emplace_back();
  out.values.assign(values.begin(), values.end());
  std::span<const std::byte> bytes = std::as_bytes(std::span(out.values));
  do {
    const std::size_t size = std::min(longest_, bytes.size());
    out.sends.push_back(StartSend(to, bytes.first(size), kPeerTag));
    bytes = bytes.subspan(size);
  } while (!bytes.empty());
}

void MessageCommunicator::Receive(int from, std::span<float> values) {
  TRIREME_CHECK(from != rank_);
  operation_ = "an exchange of two";
  std::span<std::byte> bytes = std::as_writable_bytes(values);
  do {
    const std::size_t size = std::min(longest_, bytes.size());
    Pending pending = StartReceive(from, bytes.first(size), kPeerTag);
    Wait(pending);
    bytes = bytes.subspan(size);
  } while (!bytes.empty());
}

std::unique_ptr<PeerCommunicator> MessageCommunicator::Split(int colour) {
  MPI_Comm part;
  CheckMpi(MPI_Comm_split(comm_, colour, rank_, &part), "split a group");
  std::vector<int> colours(size_);
  CheckMpi(MPI_Allgather(&colour, 1, MPI_INT, colours.data(), 1, MPI_INT, comm_), "split a group");
  std::vector<std::string> names;
  for (int rank = 0; rank < size_; ++rank) {
    if (colours[rank] == colour) names.push_back(names_[rank]);
  }
  auto group =
      std::make_unique<MessageCommunicator>(part, std::move(names), spins_ > 0, timeout_s_, longest_);
  group->post_ = post_;
  return group;
}

// Looking for a message that cannot be there makes MPI look after all of them. Whether a send counts as done says
// little: it may be, and its bytes still lie in a queue here.
void MessageCommunicator::LetMessagesMove() {
  if (!post_->used) return;
  int flag = 0;
  CheckMpi(MPI_Iprobe(MPI_ANY_SOURCE, kNobodysTag, comm_, &flag, MPI_STATUS_IGNORE), "look for messages");
}

template void MessageCommunicator::Reduce(std::span<float>);
template void MessageCommunicator::Reduce(std::span<double>);
template void MessageCommunicator::AllReduce(std::span<float>);
template void MessageCommunicator::AllReduce(std::span<double>);

}  // namespace trireme
