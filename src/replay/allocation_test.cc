// Counts what aligned buffers really allocate, for the tests that compare it with what classes say.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "trireme/base/aligned.h"
#include "trireme/replay/test_util.h"

namespace {
std::atomic<std::uint64_t> allocated_bytes = 0;
}  // namespace

// None is inlined: the compiler would see memory of `new` given to `free`, or of `aligned_alloc` to `delete`.
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  allocated_bytes += size;
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* p = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace trireme {

std::uint64_t AllocatedBytes() { return allocated_bytes; }

namespace {

TEST(Allocation, AlignedBuffersAreCounted) {
  const std::uint64_t before = AllocatedBytes();
  const AlignedBuffer<float> buffer(1000);
  EXPECT_GE(AllocatedBytes() - before, 4000u);
}

}  // namespace
}  // namespace trireme
