// What workers and parameter servers say to each other (docs/server-protocol.md). Every message is a Header,
// then `encoded` bytes of a codec's, `floats` floats, `doubles` doubles and `bytes` bytes, all little-endian.
//
// A worker has one stream to each server and at most one request under way on it; the answer repeats the
// request's sequence. A request without an answer is sent again after a reconnection: servers recognise what
// they have already done.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/base/config.h"
#include "trireme/base/error.h"
#include "trireme/codec/codec.h"
#include "trireme/optim/optimizer.h"
#include "trireme/rpc/transport.h"

namespace trireme {

inline Clock::duration Seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

static_assert(std::endian::native == std::endian::little);

enum class MessageKind : std::uint32_t {
  // From a worker.
  kHello = 1,  // bytes: Greeting. Answer: kWelcome, or kNeedState first
  kState,      // parameters and moments, answer to kNeedState; also the answer to kFetch
  kPush,       // a gradient; bytes: parameter groups. Answer: kParams, or kNorms first
  kAskNorms,   // in step: bytes: ranks whose gradients are to be added. Answer: kNorms, or kParams
  kCommit,     // floats: the scales that all norms give; bytes: ranks. Answer: kParams, or kNorms again
  kPull,       // Answer: kParams
  kCollect,    // a part of a collective operation. Answer: kCollected
  kFetch,      // Answer: kState
  kFinish,     // the run has ended. Answer: kParams
  kAlive,      // bytes: ids of workers of this process. No answer
  kLeave,      // this worker goes for good. No answer
  kEcho,       // bytes. Answer: the same
  // From a server.
  kNeedState,
  kWelcome,
  kNorms,   // in step: doubles: sums of squares of the gradients' sum; bytes: whose gradients these are
  kParams,  // the parameters; in step the same as in kNorms, and statistics behind the parameters
  kCollected,
  kWaiting,  // bytes: for whom the answer has to wait
};

enum MessageFlags : std::uint32_t {
  kFinished = 1,   // the run has ended
  kBehind = 2,     // the others are further: join them at their next boundary
  kDuplicate = 4,  // was applied before
  kBoundary = 8,   // of kCollect: whoever waits to take part enters here, with its bytes. kWelcome: it did.
                   // kCollected: they did
  kResting = 16,   // of kPull: the worker pushes nothing until it says otherwise by pushing
  kAnew = 32,      // of kWelcome: nobody was left, and all begin anew at `boundary`
};

struct Header {
  char magic[4] = {'T', 'R', 'M', '4'};
  MessageKind kind = MessageKind::kHello;
  std::uint64_t worker = 0;    // who asks (an id); in kWelcome its rank
  std::uint64_t sequence = 0;  // numbers requests; answers repeat it
  std::uint64_t version = 0;   // of the parameters that are sent or that a gradient was computed with
  std::int64_t steps = 0;      // environment steps: of this push; in answers of all workers so far
  float learning_rate = 0;
  std::uint32_t operation = 0;  // kCollect: a Collective
  double max_grad_norm = 0;     // kPush: in step, of the sum of all gradients; 0: no limit
  std::uint64_t clock = 0;      // kParams: pushes of the worker
  std::uint64_t number = 0;     // kCollect: of the operation. kWelcome: of the next. kState: updates so far
  std::uint32_t flags = 0;
  std::int32_t leader = -1;   // answers: the lowest rank that takes part
  std::uint32_t members = 0;  // answers: how many take part
  std::uint32_t encoded = 0;  // bytes of a gradient or of parameters that a codec has made smaller
  std::uint64_t held = 0;  // answers with parameters: numbers them. Requests: whose the worker holds; 0: none
  // In step, a boundary by the number of operations up to it. kPush: the last open one before it. kWelcome with
  // kAnew: the one to begin at, which is called `number` from now on.
  std::uint64_t boundary = 0;
  std::uint64_t floats = 0, doubles = 0, bytes = 0;
};
static_assert(sizeof(Header) == 128 && std::is_trivially_copyable_v<Header>);

enum class Collective : std::uint32_t { kSum = 1, kFirst, kGather };

// A message to be sent: header and room for its parts, to be filled in before it goes.
class MessageWriter {
 public:
  explicit MessageWriter(const Header& header)
      : header_(header), buffer_(std::make_shared<Buffer>(Size(header), Buffer::kUninitialised)) {
    std::memcpy(buffer_->data(), &header, sizeof header);
  }
  std::span<std::byte> encoded() { return {buffer_->data() + sizeof(Header), header_.encoded}; }
  std::byte* floats() { return buffer_->data() + sizeof(Header) + header_.encoded; }
  std::byte* doubles() { return floats() + header_.floats * sizeof(float); }
  std::byte* bytes() { return doubles() + header_.doubles * sizeof(double); }
  Outgoing Take() { return std::move(buffer_); }

  static std::size_t Size(const Header& header) {
    return sizeof header + header.encoded + header.floats * sizeof(float) + header.doubles * sizeof(double) +
           header.bytes;
  }

 private:
  using Buffer = AlignedBuffer<std::byte>;
  Header header_;
  std::shared_ptr<Buffer> buffer_;
};

// With the sizes filled in from the parts.
inline Outgoing MakeMessage(Header header, std::span<const float> floats = {},
                            std::span<const double> doubles = {}, std::string_view bytes = {}) {
  header.floats = floats.size();
  header.doubles = doubles.size();
  header.bytes = bytes.size();
  MessageWriter message(header);
  if (!floats.empty()) std::memcpy(message.floats(), floats.data(), floats.size_bytes());
  if (!doubles.empty()) std::memcpy(message.doubles(), doubles.data(), doubles.size_bytes());
  if (!bytes.empty()) std::memcpy(message.bytes(), bytes.data(), bytes.size());
  return message.Take();
}

// Reads the header and checks that the sizes in it are those of the message. Throws Error.
Header ReadHeader(Incoming& message);
AlignedBuffer<std::byte> ReadEncoded(Incoming& message, const Header& header);
inline void ReadFloats(Incoming& message, std::span<float> to) { message.Read(std::as_writable_bytes(to)); }
std::vector<double> ReadDoubles(Incoming& message, const Header& header);
std::string ReadText(Incoming& message, const Header& header);

// Of a message that is to be sent, or was.
inline std::span<const std::byte> EncodedOf(const Outgoing& message) {
  Header header;
  std::memcpy(&header, message->data(), sizeof header);
  return {message->data() + sizeof header, header.encoded};
}

// How the workers of a run take turns: all in step; each on its own; or each on its own, but nobody more than
// a bound of pushes ahead of the slowest.
enum class Pace { kSync, kAsync, kSsp };
inline constexpr EnumName<Pace> kPaceNames[] = {
    {"sync", Pace::kSync}, {"async", Pace::kAsync}, {"ssp", Pace::kSsp}};

inline constexpr int kMostServers = 1024, kMostWorkers = 1024;
// How reasons for closing a stream begin that need not be the end: try again.
inline constexpr std::string_view kLater = "later: ";
// Numbers beyond this are not believed.
inline constexpr std::uint64_t kMostUpdates = std::uint64_t{1} << 48;
inline constexpr std::uint64_t kHighestRank = 1'000'000'000;

// What all workers and servers of a run agree on.
struct RunTerms {
  std::string version, env, algo, network;
  std::uint64_t seed = 0, params = 1;
  int work_shards = 1, servers = 1;
  Pace pace = Pace::kAsync;
  int workers = 1;  // in step: how many take part
  int backup_workers = 0;
  std::int64_t staleness_bound = 0;
  bool staleness_scaled = false;
  double lease_s = 5, round_s = 300;
  // How gradients and parameters travel: codecs, or kNoCodec.
  std::string compress = std::string(kNoCodec), compress_params = std::string(kNoCodec);
  std::string precision = "fp32";  // in step: of those who compute
  OptimizerSettings optimizer;

  // Floats that a server holds for each parameter besides itself: moments of the optimizer and, where workers in
  // step hold what a codec has told them, the exact parameter.
  std::size_t moments() const {
    return OptimizerRule(optimizer).moments() + (params_codec_in_step() == kNoCodec ? 0 : 1);
  }
  std::string params_codec_in_step() const {
    return pace == Pace::kSync ? compress_params : std::string(kNoCodec);
  }

  void Fields(ConfigFields& field);
  std::string Encode() const;
  // Throws Error.
  static RunTerms Decode(std::string_view text);
  // Throws Error unless there are codecs of these names here.
  void CheckCodecs() const;
  // Throws Error with the first difference.
  void CheckEqual(const RunTerms& theirs) const;
};

// The part of server `index`: [begin, begin + size) of all parameters. Parts begin at blocks of the norm, so
// that the servers' sums of squares make that of the whole.
struct PartRange {
  std::size_t begin = 0, size = 0;
};
PartRange RangeOfServer(const RunTerms& terms, int index);

// What a worker says of itself: the bytes of kHello.
struct Greeting {
  std::uint64_t worker = 0;  // its id, drawn at random when it starts
  std::int64_t rank = -1;    // the one it has, or -1: to be given one (by the first server)
  std::uint64_t clock = 0;   // its pushes so far
  bool candidate = true;     // may lead: evaluate, decide, keep the files of the run
  int server = 0;            // which part of the parameters it takes this server for
  bool continues = false;    // it comes back after a broken stream, perhaps in the middle of an operation
  // The boundary at which the first server lets all begin anew, or -1, and what it is called from now on: what was made
  // after it under its former names is to be undone.
  std::int64_t anew = -1;
  std::uint64_t boundary = 0;
  RunTerms terms;

  void Fields(ConfigFields& field);
  std::string Encode() const;
  // Throws Error.
  static Greeting Decode(std::string_view text);
};

}  // namespace trireme
