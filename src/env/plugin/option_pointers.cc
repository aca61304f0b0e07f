#include "trireme/env/plugin/option_pointers.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using Address = std::uint64_t;
static_assert(sizeof(Address) == sizeof(void*));

// Where something lies: its first address, and the last that points to it, which is the one behind it.
struct Place {
  Address first = 1, last = 0;
  bool Has(Address address) const { return address >= first && address <= last; }
};

Place PlaceOf(std::span<const trireme_value> options, std::uint64_t what) {
  if (what == 0) {
    const auto first = reinterpret_cast<Address>(options.data());
    return {first, first + options.size_bytes()};
  }
  const char* const text = options[what - 1].text;
  if (text == nullptr) return {};
  const auto first = reinterpret_cast<Address>(text);
  return {first, first + std::strlen(text)};
}

}  // namespace

std::vector<OptionPointer> FindOptionPointers(std::span<const trireme_value> options,
                                              std::span<const std::byte> state) {
  std::vector<OptionPointer> found;
  if (options.empty()) return found;
  std::vector<Place> places;
  Place all{std::numeric_limits<Address>::max(), 0};
  for (std::uint64_t what = 0; what <= options.size(); ++what) {
    const Place place = places.emplace_back(PlaceOf(options, what));
    if (place.first > place.last) continue;
    all = {std::min(all.first, place.first), std::max(all.last, place.last)};
  }
  for (std::size_t at = 0; at + sizeof(Address) <= state.size(); at += sizeof(Address)) {
    Address address;
    std::memcpy(&address, state.data() + at, sizeof(address));
    if (!all.Has(address)) continue;
    const auto place = std::ranges::find_if(places, [&](const Place& one) { return one.Has(address); });
    if (place == places.end()) continue;
    found.push_back({at, static_cast<std::uint64_t>(place - places.begin()), address - place->first});
  }
  return found;
}

void SetOptionPointers(std::span<const trireme_value> options, std::span<const OptionPointer> pointers,
                       std::span<std::byte> state) {
  for (const OptionPointer& pointer : pointers) {
    const Place place = pointer.what <= options.size() ? PlaceOf(options, pointer.what) : Place{};
    if (place.first > place.last || pointer.offset > place.last - place.first || pointer.at > state.size() ||
        state.size() - pointer.at < sizeof(Address)) {
      Fail("the saved state refers to options that are not there: it belongs to other options");
    }
    const Address address = place.first + pointer.offset;
    std::memcpy(state.data() + pointer.at, &address, sizeof(address));
  }
}

}  // namespace trireme
