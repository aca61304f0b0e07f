// A 64-bit checksum that keeps up with memory.
//
// Eight words are taken at a time, each into a lane of its own: lane = rotate(lane ^ word) * odd. Every step
// can be undone, so a change within one word always changes the result; other damage goes unnoticed once in
// 2^64. It protects against accidents, not against people. Thread safety: a plain function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme {

// Several pieces are summed one after the other, each with the checksum of those before it as its seed.
std::uint64_t Checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace trireme
