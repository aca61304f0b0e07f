// The last sequence of every worker, by which an update that comes twice is recognised.
//
// Workers come and go: beyond kMost of them the one that has been silent for the most updates is forgotten.
// It would have to repeat an update after kMost others have made theirs to have it applied twice. Never
// allocates after construction. Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

class LastSequences {
 public:
  static constexpr std::size_t kMost = 4096;
  struct Entry {
    std::uint64_t worker = 0, sequence = 0;
    std::uint64_t version = 0;  // of the part after the update
  };

  LastSequences() { entries_.reserve(kMost + 1); }

  // 0 if the worker is not known.
  std::uint64_t Of(std::uint64_t worker) const {
    const auto it = std::lower_bound(entries_.begin(), entries_.end(), worker, Before);
    return it != entries_.end() && it->worker == worker ? it->sequence : 0;
  }
  void Set(const Entry& entry) {
    const auto it = std::lower_bound(entries_.begin(), entries_.end(), entry.worker, Before);
    if (it != entries_.end() && it->worker == entry.worker) {
      *it = entry;
      return;
    }
    entries_.insert(it, entry);
    if (entries_.size() <= kMost) return;
    const auto silent = [](const Entry& a, const Entry& b) { return a.version < b.version; };
    entries_.erase(std::min_element(entries_.begin(), entries_.end(), silent));
  }

  std::span<const Entry> entries() const { return entries_; }

 private:
  static bool Before(const Entry& entry, std::uint64_t worker) { return entry.worker < worker; }
  std::vector<Entry> entries_;  // by worker
};

}  // namespace trireme
