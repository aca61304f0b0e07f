// powersgd: the values as a matrix M of about as many rows as columns, by one step of the power method
// (Vogels et al. 2019): P = M Q, orthonormal columns of P, Q = transposed M times P. P and Q are sent, and stand for
// P times transposed Q. Q is where the next message begins. A message has P, then Q, both by columns.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/base/simd.h"
#include "trireme/codec/codecs.h"

namespace trireme {
namespace {

constexpr std::size_t kLanes = 16;  // sums that are kept apart, so that all instruction sets add alike

struct Dot {
  TRIREME_INLINE float Run(const float* a, const float* b, std::size_t n) {
    float lanes[kLanes] = {};
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (std::size_t j = 0; j < kLanes; ++j) lanes[j] += a[i + j] * b[i + j];
    }
    for (; i < n; ++i) lanes[i % kLanes] += a[i] * b[i];
    float sum = 0;
    for (std::size_t j = 0; j < kLanes; ++j) sum += lanes[j];
    return sum;
  }
};

// to += factor * from
struct AddScaled {
  TRIREME_INLINE void Run(const float* from, float factor, float* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] += factor * from[i];
  }
};

// Rows of `columns` values; the last one may be shorter.
struct Shape {
  std::size_t values, rows, columns;
  explicit Shape(std::size_t n)
      : values(n),
        rows(static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(n))))),
        columns(rows == 0 ? 0 : (n + rows - 1) / rows) {}
  std::size_t width(std::size_t row) const {
    return std::min(columns, values - std::min(values, row * columns));
  }
};

class Power final : public Codec {
 public:
  explicit Power(int rank) : rank_(static_cast<std::size_t>(rank)) {}

  std::string name() const override { return fmt::format("powersgd={}", rank_); }
  std::size_t bytes(std::size_t values) const override {
    const Shape shape(values);
    return rank_ * (shape.rows + shape.columns) * sizeof(float);
  }
  std::size_t memory(std::size_t values) const override { return rank_ * Shape(values).columns; }

  void Encode(std::span<const float> values, CodecState& state, std::span<std::byte> out) const override {
    TRIREME_CHECK(out.size() == bytes(values.size()) && state.residual.size() == values.size());
    if (values.empty()) return;
    CheckSums(values, state.residual.span());
    const Shape shape(values.size());
    float* const m = state.residual.data();
    for (std::size_t i = 0; i < values.size(); ++i) m[i] += values[i];
    float* const q = state.memory.data();
    Begin(shape, q);
    std::vector<float> p(rank_ * shape.rows);
    for (std::size_t row = 0; row < shape.rows; ++row) {
      for (std::size_t k = 0; k < rank_; ++k)
        p[k * shape.rows + row] =
            SimdCall<Dot>(static_cast<const float*>(m + row * shape.columns),
                          static_cast<const float*>(q + k * shape.columns), shape.width(row));
    }
    Orthonormalise(p, shape.rows);
    std::fill_n(q, rank_ * shape.columns, 0.0f);
    for (std::size_t row = 0; row < shape.rows; ++row) {
      for (std::size_t k = 0; k < rank_; ++k)
        SimdCall<AddScaled>(static_cast<const float*>(m + row * shape.columns), p[k * shape.rows + row],
                            q + k * shape.columns, shape.width(row));
    }
    Rows(shape, p.data(), q, [&](std::size_t row, std::span<const float> product) {
      SimdCall<AddScaled>(product.data(), -1.0f, m + row * shape.columns, product.size());
    });
    std::memcpy(out.data(), p.data(), p.size() * sizeof(float));
    std::memcpy(out.data() + p.size() * sizeof(float), q, rank_ * shape.columns * sizeof(float));
  }

  void Decode(std::span<const std::byte> in, std::span<float> values) const override {
    CheckSize("powersgd", in.size(), bytes(values.size()));
    const Shape shape(values.size());
    std::vector<float> factors(in.size() / sizeof(float));
    if (!factors.empty()) std::memcpy(factors.data(), in.data(), in.size());
    Rows(shape, factors.data(), factors.data() + rank_ * shape.rows,
         [&](std::size_t row, std::span<const float> product) {
           std::ranges::copy(product, values.begin() + static_cast<std::ptrdiff_t>(row * shape.columns));
         });
    for (const float value : values) {
      if (!std::isfinite(value)) Fail("a message compressed by powersgd has values that are not finite");
    }
  }

 private:
  // Columns of the last message, made short enough; those that say nothing point anywhere, everywhere alike.
  void Begin(const Shape& shape, float* q) const {
    for (std::size_t k = 0; k < rank_; ++k) {
      float* const column = q + k * shape.columns;
      float most = 0;
      for (std::size_t i = 0; i < shape.columns; ++i) most = std::max(most, std::abs(column[i]));
      if (most > 0x1p-100f) {
        for (std::size_t i = 0; i < shape.columns; ++i) column[i] /= most;
        continue;
      }
      RandomStream random(0, Purpose::kCodec, static_cast<std::uint32_t>(k), 0);
      for (std::size_t i = 0; i < shape.columns; ++i) column[i] = static_cast<float>(random.NextNormal());
    }
  }

  // Gram-Schmidt, twice, so that rounding matters little. A column that depends on those before becomes zero.
  void Orthonormalise(std::vector<float>& p, std::size_t rows) const {
    const auto column = [&](std::size_t k) { return p.data() + k * rows; };
    const auto dot = [&](std::size_t a, std::size_t b) {
      return SimdCall<Dot>(static_cast<const float*>(column(a)), static_cast<const float*>(column(b)), rows);
    };
    for (std::size_t k = 0; k < rank_; ++k) {
      // The largest element becomes one first: squares neither vanish nor overflow.
      float most = 0;
      for (std::size_t i = 0; i < rows; ++i) most = std::max(most, std::abs(column(k)[i]));
      if (!(most > 0x1p-100f) || !std::isfinite(most)) {
        std::fill_n(column(k), rows, 0.0f);
        continue;
      }
      for (std::size_t i = 0; i < rows; ++i) column(k)[i] /= most;
      const float before = dot(k, k);
      for (int pass = 0; pass < 2; ++pass) {
        for (std::size_t j = 0; j < k; ++j)
          SimdCall<AddScaled>(static_cast<const float*>(column(j)), -dot(j, k), column(k), rows);
      }
      const float after = dot(k, k);
      const float factor = after > 1e-10f * before ? 1 / std::sqrt(after) : 0;
      for (std::size_t i = 0; i < rows; ++i) column(k)[i] *= factor;
    }
  }

  // Calls take(row, values of that row of P times transposed Q).
  template <class Take>
  void Rows(const Shape& shape, const float* p, const float* q, Take&& take) const {
    std::vector<float> product(shape.columns);
    for (std::size_t row = 0; row < shape.rows; ++row) {
      std::ranges::fill(product, 0.0f);
      for (std::size_t k = 0; k < rank_; ++k)
        SimdCall<AddScaled>(q + k * shape.columns, p[k * shape.rows + row], product.data(), shape.width(row));
      take(row, std::span<const float>(product).first(shape.width(row)));
    }
  }

  std::size_t rank_;
};

}  // namespace

std::unique_ptr<Codec> MakePowerCodec(int rank) { return std::make_unique<Power>(rank); }

}  // namespace trireme
