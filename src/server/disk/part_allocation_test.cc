// Counts the allocations of this thread. Not under sanitizers, which have allocators of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <cstdlib>
#include <new>

#include "trireme/server/disk/part_test_util.h"

namespace {
thread_local std::uint64_t allocations = 0;
}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace trireme {
namespace {

class PartAllocation : public PartFolderTest {};

TEST_F(PartAllocation, AnUpdateAllocatesNothing) {
  const Course course(3000);
  PartStorage storage = Storage(1 << 20);
  storage.audit = root_ / "audit";
  ParameterPart part(course.setup(), storage, course.Start());
  const std::vector<float> gradient = course.Gradient(1);
  const std::string note(100, 'x');
  part.Apply(Course::Update(1), gradient, note);
  const std::uint64_t before = allocations;
  for (std::uint64_t number = 2; number < 10; ++number) part.Apply(Course::Update(number), gradient, note);
  EXPECT_EQ(allocations, before);
  part.Note("name", note);
  EXPECT_GT(allocations, before) << "the counter does not count";
}

}  // namespace
}  // namespace trireme
#endif
