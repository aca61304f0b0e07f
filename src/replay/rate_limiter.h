// How far remembering and drawing may drift apart, as in Reverb (Cassirer et al. 2021, arXiv:2102.04736).
//
//   drift = drawn - draws_per_insert max(0, inserted - least)
//
// Invariant: before `least` transitions are there nothing is drawn; from then on |drift| <= slack after every insert and
// every draw, so the ratio of the two tends to draws_per_insert. Where slack is at least what one draw, and what one insert
// brings (Least), one of the two may always go on. Who begins another one in the place of this one takes the drift along.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme {

class RateLimiter {
 public:
  struct Rules {
    double draws_per_insert = 1, least = 1, slack = 1;

    // What slack must be at least, for inserts and draws of so many transitions at a time.
    double LeastSlack(double insert, double draw) const { return std::max(draws_per_insert * insert, draw); }
  };

  // `inserted` transitions are there already, and have been drawn from with this drift.
  explicit RateLimiter(const Rules& rules, std::uint64_t inserted = 0, double drift = 0)
      : rules_(rules),
        inserted_(static_cast<double>(inserted)),
        drawn_(inserted_ < rules.least ? 0 : std::max(0.0, Due(inserted_) + drift)) {}

  bool MayInsert(std::uint64_t n) const {
    const double after = inserted_ + static_cast<double>(n);
    return after <= rules_.least || drawn_ - Due(after) >= -rules_.slack;
  }
  bool MayDraw(std::uint64_t n) const {
    return inserted_ >= rules_.least && drawn_ + static_cast<double>(n) - Due(inserted_) <= rules_.slack;
  }
  void Inserted(std::uint64_t n) { inserted_ += static_cast<double>(n); }
  void Drawn(std::uint64_t n) { drawn_ += static_cast<double>(n); }

  double drift() const { return drawn_ - std::max(0.0, Due(inserted_)); }

 private:
  double Due(double inserted) const { return rules_.draws_per_insert * (inserted - rules_.least); }

  Rules rules_;
  double inserted_, drawn_;
};

}  // namespace trireme
