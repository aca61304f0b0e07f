#include "trireme/store/gradient_sum.h"

#include <algorithm>
#include <cstring>
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

  // A message: what the codec says of the gradient, then the statistics as they are.
  void Exchange(std::span<float> gradient, std::size_t params) {
    const std::span<float> statistics = gradient.subspan(params);
    const std::size_t encoded = encoder_->bytes(0);
    std::string own(encoded + statistics.size_bytes(), '\0');
    encoder_->Encode(0, gradient.first(params), std::as_writable_bytes(std::span(own)).first(encoded));
    if (!statistics.empty()) std::memcpy(own.data() + encoded, statistics.data(), statistics.size_bytes());
    const std::size_t size = own.size();
    const std::vector<std::string> all = between_->AllGather(std::move(own));
    const double begun_s = MonotonicSeconds();
    if (!sum_) sum_.emplace(gradient.size());
    for (const std::string& message : all) {
      if (message.size() != size) Fail("a process has sent {} bytes where {} are due", message.size(), size);
      const std::span<float> values = sum_->Next();
      encoder_->codec().Decode(std::as_bytes(std::span(message)).first(encoded), values.first(params));
      if (!statistics.empty())
        std::memcpy(values.data() + params, message.data() + encoded, statistics.size_bytes());
      sum_->Add();
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
  std::optional<ShardSum<float>> sum_;
  bool owes_ = false;  // what was loaded is not sent yet, where nothing is sent
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
