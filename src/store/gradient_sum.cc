#include "trireme/store/gradient_sum.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/codec/gradient_encoder.h"
#include "trireme/comm/shard_sum.h"

namespace trireme {
namespace {

// What a codec had left unsaid when there were other senders.
constexpr const char* kSummed =
    "what was not sent of gradients is added up over all processes: their number has changed";

class PlainSum final : public GradientSum {
 public:
  explicit PlainSum(Communicator& comm) : comm_(comm) {}

  void Sum(std::span<float> gradient, std::size_t params) override {
    if (!owed_.empty() && owed_.size() != params)
      Fail("what was not sent of gradients is of {} parameters, not of {}", owed_.size(), params);
    for (std::size_t i = 0; i < owed_.size(); ++i) gradient[i] += owed_[i];
    owed_.clear();
    comm_.AllReduceSum(gradient);
  }

  // Of a run that was compressed before.
  std::string LoadOwn(const StateReader& in) override {
    if (comm_.rank() == 0) owed_ = GradientEncoder::SumOfAll(in);
    return GradientEncoder::SavedIn(in) == 0 ? "" : "what was not sent of gradients goes with the first one";
  }

 private:
  Communicator& comm_;
  std::vector<float> owed_;
};

class CompressedSum final : public GradientSum {
 public:
  CompressedSum(Communicator& inside, Communicator* between, int groups, std::string_view codec,
                std::size_t params)
      : inside_(inside), between_(between), groups_(groups) {
    TRIREME_CHECK(!leader() || groups == 1 || between->size() == groups);
    if (leader()) encoder_.emplace(codec, std::vector<GradientEncoder::Part>{{0, params}});
  }

  void Sum(std::span<float> gradient, std::size_t params) override {
    if (groups_ == 1) {
      if (leader() && owes_) encoder_->Flush(gradient);
      owes_ = false;
      return inside_.AllReduceSum(gradient);
    }
    inside_.ReduceSum(gradient);
    if (leader()) Exchange(gradient, params);
    inside_.Broadcast(gradient);
  }

  Traffic traffic() const override {
    return {.bytes_saved = bytes_saved_,
            .compress_s = encoder_ ? encoder_->seconds() : 0,
            .decompress_s = decompress_s_};
  }

  double ResidualNorm() const override { return encoder_ ? encoder_->ResidualNorm() : 0; }

  void SaveOwn(StateWriter& out) const override {
    if (leader()) encoder_->Save(process(), out);
  }
  std::string LoadOwn(const StateReader& in) override {
    if (!leader()) return "";
    const auto loaded = encoder_->Load(process(), groups_, in);
    owes_ = loaded != GradientEncoder::Loaded::kNothing;
    return loaded == GradientEncoder::Loaded::kSummed ? kSummed : "";
  }

 private:
  bool leader() const { return inside_.rank() == 0; }
  int process() const { return groups_ == 1 ? 0 : between_->rank(); }

  // Whether the gradient is one that a codec can say. One that is not finite is no error here: where losses are
  // scaled it is left out.
  bool TryEncode(std::span<const float> gradient, std::string& message) {
    try {
      encoder_->Encode(0, gradient, std::as_writable_bytes(std::span(message)));
    } catch (const Error&) {
      return false;
    }
    return true;
  }

  // A message: what the codec says of the gradient, then the statistics as they are. Statistics alone: the gradient
  // is not finite, and so is the sum.
  void Exchange(std::span<float> gradient, std::size_t params) {
    const std::span<float> statistics = gradient.subspan(params);
    const std::size_t encoded = encoder_->bytes(0), without = statistics.size_bytes();
    std::string own(encoded, '\0');
    const bool encodes = TryEncode(gradient.first(params), own);
    if (!encodes) own.clear();
    own.append(reinterpret_cast<const char*>(statistics.data()), without);
    const std::vector<std::string> all = between_->AllGather(std::move(own));
    const double begun_s = MonotonicSeconds();
    if (!sum_ || sum_->size() != gradient.size()) sum_.emplace(gradient.size());  // statistics come and go
    bool finite = true;
    for (const std::string& message : all) {
      const bool has_gradient = message.size() == encoded + without;
      if (!has_gradient && message.size() != without)
        Fail("a process has sent {} bytes where {} are due", message.size(), encoded + without);
      const std::span<float> values = sum_->Next();
      if (has_gradient) {
        encoder_->codec().Decode(std::as_bytes(std::span(message)).first(encoded), values.first(params));
      } else {
        std::ranges::fill(values.first(params), std::numeric_limits<float>::quiet_NaN());
        finite = false;
      }
      if (without > 0)
        std::memcpy(values.data() + params, message.data() + message.size() - without, without);
      sum_->Add();
    }
    // Nobody will apply what the others have sent.
    if (!finite && encodes) {
      const auto sent = std::as_bytes(std::span(all[static_cast<std::size_t>(process())])).first(encoded);
      encoder_->TakeBack(0, gradient, sent);
    }
    std::ranges::copy(sum_->Total(), gradient.begin());
    decompress_s_ += MonotonicSeconds() - begun_s;
    bytes_saved_ += static_cast<std::int64_t>(all.size() - 1) *
                    (static_cast<std::int64_t>(params * sizeof(float)) - static_cast<std::int64_t>(encoded));
  }

  Communicator& inside_;
  Communicator* const between_;
  const int groups_;
  std::optional<GradientEncoder> encoder_;  // of the first thread
  std::optional<ShardSum<float>> sum_;      // as long as the last gradient with its statistics
  bool owes_ = false;                       // what was loaded is not sent yet, where nothing is sent
  double decompress_s_ = 0;
  std::int64_t bytes_saved_ = 0;
};

}  // namespace

std::unique_ptr<GradientSum> MakePlainSum(Communicator& comm) { return std::make_unique<PlainSum>(comm); }

std::unique_ptr<GradientSum> MakeCompressedSum(Communicator& inside, Communicator* between, int groups,
                                               std::string_view codec, std::size_t params) {
  return std::make_unique<CompressedSum>(inside, between, groups, codec, params);
}

}  // namespace trireme
