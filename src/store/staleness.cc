#include <algorithm>
#include <numeric>

#include "trireme/store/parameter_store.h"

namespace trireme {

void Staleness::Add(std::uint64_t versions) {
  pushes[std::min<std::uint64_t>(versions, kBuckets - 1)] += 1;
  sum += versions;
  most = std::max(most, versions);
}

Staleness& Staleness::operator+=(const Staleness& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) pushes[i] += other.pushes[i];
  sum += other.sum;
  most = std::max(most, other.most);
  return *this;
}

std::uint64_t Staleness::count() const { return std::reduce(pushes.begin(), pushes.end()); }

double Staleness::mean() const {
  return count() == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(count());
}

}  // namespace trireme
