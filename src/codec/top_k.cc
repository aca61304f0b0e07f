// topk: the k largest values as they are, nothing of the others (Aji and Heafield 2017). Of equal ones the
// first are taken. A message has the places in rising order, 32 bits each, then the values.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"
#include "trireme/codec/codecs.h"

namespace trireme {
namespace {

// Sizes are compared as the bits of absolute values, whose order is the same.
[[gnu::always_inline]] inline std::uint32_t SizeOf(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits & 0x7FFFFFFF;
}

// Values of about the same size are one class: exponent and three bits.
constexpr int kClassBits = 11, kShift = 31 - kClassBits;
constexpr std::size_t kClasses = std::size_t{1} << kClassBits;

// residual += values, and how many there are of each class.
struct AddAndCount {
  static constexpr std::size_t kCopies =
      4;  // neighbours are often of one class and would wait for each other
  using Counts = std::array<std::array<std::uint32_t, kClasses>, kCopies>;
  TRIREME_INLINE void Run(const float* values, float* residual, std::size_t n, Counts* counts) {
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8) {
      std::uint32_t classes[8];
      for (std::size_t j = 0; j < 8; ++j) {
        residual[i + j] += values[i + j];
        classes[j] = SizeOf(residual[i + j]) >> kShift;
      }
      for (std::size_t j = 0; j < 8; ++j) ++(*counts)[j % kCopies][classes[j]];
    }
    for (; i < n; ++i) {
      residual[i] += values[i];
      ++(*counts)[0][SizeOf(residual[i]) >> kShift];
    }
  }
};

// How many values of one class there are of each of its kFineClasses parts; the last count is of all others.
constexpr int kFineBits = 10;
constexpr std::size_t kFineClasses = std::size_t{1} << kFineBits;
struct CountWithin {
  using Counts = std::array<std::uint32_t, kFineClasses + 1>;
  TRIREME_INLINE void Run(const float* values, std::size_t n, std::uint32_t wanted, Counts* counts) {
    constexpr std::size_t kGroup = 16;
    std::size_t i = 0;
    for (; i + kGroup <= n; i += kGroup) {
      std::uint32_t parts[kGroup], any = 0;
      for (std::size_t j = 0; j < kGroup; ++j) {
        const std::uint32_t size = SizeOf(values[i + j]);
        const bool in_class = size >> kShift == wanted;
        parts[j] = in_class ? (size >> (kShift - kFineBits)) & (kFineClasses - 1) : kFineClasses;
        any |= in_class ? 1 : 0;
      }
      if (any == 0) continue;
      for (std::size_t j = 0; j < kGroup; ++j) ++(*counts)[parts[j]];
    }
    for (; i < n; ++i) {
      const std::uint32_t size = SizeOf(values[i]);
      if (size >> kShift == wanted) ++(*counts)[(size >> (kShift - kFineBits)) & (kFineClasses - 1)];
    }
  }
};

// The places of values of at least this size, in order; how many there are.
struct Find {
  TRIREME_INLINE std::size_t Run(const float* values, std::size_t n, std::uint32_t least,
                                 std::uint32_t* places) {
    constexpr std::size_t kGroup = 32;  // most have none
    std::size_t found = 0, i = 0;
    for (; i + kGroup <= n; i += kGroup) {
      std::uint32_t most = 0;
      for (std::size_t j = 0; j < kGroup; ++j) most = std::max(most, SizeOf(values[i + j]));
      if (most < least) continue;
      for (std::size_t j = 0; j < kGroup; ++j) {
        places[found] = static_cast<std::uint32_t>(i + j);
        found += SizeOf(values[i + j]) >= least ? 1 : 0;
      }
    }
    for (; i < n; ++i) {
      places[found] = static_cast<std::uint32_t>(i);
      found += SizeOf(values[i]) >= least ? 1 : 0;
    }
    return found;
  }
};

class TopK final : public Codec {
 public:
  explicit TopK(double share) : share_(share) {}

  std::string name() const override { return fmt::format("topk={}", share_); }
  std::size_t bytes(std::size_t values) const override { return Kept(values) * 2 * sizeof(std::uint32_t); }

  void Encode(std::span<const float> values, CodecState& state, std::span<std::byte> out) const override {
    TRIREME_CHECK(out.size() == bytes(values.size()) && state.residual.size() == values.size());
    CheckSums(values, state.residual.span());
    float* const sums = state.residual.data();
    const std::vector<std::uint32_t> places = Largest(values, sums);
    std::byte* const kept = out.data() + places.size() * sizeof(std::uint32_t);
    if (!places.empty()) std::memcpy(out.data(), places.data(), places.size() * sizeof(std::uint32_t));
    for (std::size_t i = 0; i < places.size(); ++i) {
      std::memcpy(kept + i * sizeof(float), &sums[places[i]], sizeof(float));
      sums[places[i]] = 0;
    }
  }

  void Decode(std::span<const std::byte> in, std::span<float> values) const override {
    CheckSize("topk", in.size(), bytes(values.size()));
    std::ranges::fill(values, 0.0f);
    const std::size_t kept = Kept(values.size());
    std::uint64_t next = 0;  // the first place that may follow
    for (std::size_t i = 0; i < kept; ++i) {
      std::uint32_t place;
      float value;
      std::memcpy(&place, in.data() + i * sizeof place, sizeof place);
      std::memcpy(&value, in.data() + (kept + i) * sizeof value, sizeof value);
      if (place < next || place >= values.size() || !std::isfinite(value))
        Fail("a message compressed by topk has {} at place {} of {}", value, place, values.size());
      values[place] = value;
      next = std::uint64_t{place} + 1;
    }
  }

 private:
  std::size_t Kept(std::size_t values) const {
    return std::min(values, static_cast<std::size_t>(std::ceil(share_ * static_cast<double>(values))));
  }

  // Adds `values` to `sums`; the places of the largest sums, in order.
  std::vector<std::uint32_t> Largest(std::span<const float> values, float* sums) const {
    const auto counts = std::make_unique<AddAndCount::Counts>();
    SimdCall<AddAndCount>(values.data(), sums, values.size(), counts.get());
    const std::size_t kept = Kept(values.size());
    std::size_t least_class = kClasses, above = 0, found = 0;  // of the smallest class that is needed
    while (found < kept) {
      --least_class;
      above = found;
      for (const auto& copy : *counts) found += copy[least_class];
    }
    auto least = static_cast<std::uint32_t>(least_class << kShift), next = least + (1u << kShift);
    if (found > kept + kept / 2) {
      // Where residuals have grown for long, many are about as large as the smallest that is sent.
      const auto fine = std::make_unique<CountWithin::Counts>();
      SimdCall<CountWithin>(static_cast<const float*>(sums), values.size(),
                            static_cast<std::uint32_t>(least_class), fine.get());
      std::size_t part = kFineClasses;
      for (found = above; found < kept;) {
        above = found;
        found += (*fine)[--part];
      }
      least += static_cast<std::uint32_t>(part << (kShift - kFineBits));
      next = least + (1u << (kShift - kFineBits));
    }
    std::vector<std::uint32_t> places(found + 1);  // Find writes one more
    SimdCall<Find>(static_cast<const float*>(sums), values.size(), least, places.data());
    places.resize(found);
    if (found > kept) DropSmallest(places, sums, next, kept - above);
    return places;
  }

  // Of the values below `size` keeps the `wanted` largest.
  static void DropSmallest(std::vector<std::uint32_t>& places, const float* sums, std::uint32_t size,
                           std::size_t wanted) {
    std::vector<std::uint32_t> candidates;
    for (const std::uint32_t place : places) {
      if (SizeOf(sums[place]) < size) candidates.push_back(place);
    }
    const auto before = [&](std::uint32_t a, std::uint32_t b) {
      const std::uint32_t size_a = SizeOf(sums[a]), size_b = SizeOf(sums[b]);
      return size_a != size_b ? size_a > size_b : a < b;
    };
    const auto last = candidates.begin() + static_cast<std::ptrdiff_t>(wanted) - 1;  // wanted > 0
    std::nth_element(candidates.begin(), last, candidates.end(), before);
    std::erase_if(places,
                  [&, last = *last](std::uint32_t place) { return place != last && before(last, place); });
  }

  double share_;
};

}  // namespace

std::unique_ptr<Codec> MakeTopKCodec(double share) { return std::make_unique<TopK>(share); }

}  // namespace trireme
