// Both ends of a ring, and messages through it, in one process.
#include "trireme/rpc/shared_memory/ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "trireme/base/error.h"
#include "trireme/rpc/shared_memory/message.h"
#include "trireme/rpc/test_util.h"

namespace trireme {
namespace {

// Both ends in one process, and the sockets through which they wake each other.
struct Ring : testing::Test {
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
    state = &segment.head().to_server;
    writer = RingWriter(*state, segment.to_server(), sockets[0]);
    reader = RingReader(*state, segment.to_server(), sockets[1]);
  }
  void TearDown() override {
    for (const int socket : sockets) close(socket);
  }
  // How often somebody was called at a socket since the last time.
  static ssize_t Calls(int socket) {
    char bytes[256];
    return std::max<ssize_t>(recv(socket, bytes, sizeof bytes, 0), 0);
  }

  Descriptor fd;
  Segment segment = Segment::Create(fd);
  int sockets[2] = {-1, -1};
  RingState* state = nullptr;
  RingWriter writer;
  RingReader reader;
};

TEST_F(Ring, WhoSleepsIsWokenOnceAndWhoDoesNotIsLeftAlone) {
  const std::vector<std::byte> bytes = Pattern(1000, 1);
  const auto put = [&] {
    writer.Put(bytes);
    writer.Publish();
  };
  const auto take = [&] { reader.Release(reader.Look()); };
  for (int i = 0; i < 1000; ++i) {  // both are busy
    put();
    take();
  }
  EXPECT_EQ(Calls(sockets[0]) + Calls(sockets[1]), 0);
  EXPECT_TRUE(reader.Sleep());
  put();
  put();
  EXPECT_EQ(Calls(sockets[1]), 1);
  EXPECT_FALSE(reader.Sleep()) << "there is something that it has not seen";
  take();
  while (writer.Room() >= bytes.size()) writer.Put(bytes);
  writer.Publish();
  EXPECT_TRUE(writer.Sleep(bytes.size()));
  Calls(sockets[1]);
  reader.Look();
  reader.Release(1000);
  EXPECT_EQ(Calls(sockets[0]), 0) << "not for every little";
  reader.Release(kRingBytes / 2);
  EXPECT_EQ(Calls(sockets[0]), 1);
  EXPECT_FALSE(writer.Sleep(bytes.size()));
}

TEST_F(Ring, MessagesOfAllLengthsAtAllPlaces) {
  RingMessageWriter to(writer);
  MessageReader from(reader);
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const std::size_t most = i % 10 == 0 ? 3 * kRingBytes : i % 3 == 0 ? kRingBytes / 2 : 100;
    const std::vector<std::byte> bytes = Pattern(random() % (most + 1), static_cast<std::size_t>(i));
    to.Begin(Message(bytes));
    do {
      to.Advance();
    } while (!from.Next(SIZE_MAX));
    ASSERT_TRUE(to.done());
    ASSERT_EQ(ReadAll(from), bytes) << i;
  }
}

TEST_F(Ring, CountsThatCannotBeAreRefused) {
  EXPECT_EQ(reader.Look(), 0u);
  state->written = kRingBytes + 1;
  EXPECT_THROW(reader.Look(), Error);
  EXPECT_THROW(reader.Sleep(), Error);
  state->written = kRingBytes;
  EXPECT_EQ(reader.Look(), kRingBytes);
  reader.Release(100);
  state->written = 99;  // it goes back
  EXPECT_THROW(reader.Look(), Error);
  state->read = 1;  // what was never written
  EXPECT_THROW(writer.Room(), Error);
  EXPECT_THROW(writer.Sleep(1), Error);
}

TEST_F(Ring, AfterTheEndOnlyWhatWasThereIsRead) {
  RingMessageWriter to(writer);
  MessageReader from(reader);
  to.Begin(Message(Pattern(10, 1)));
  to.Advance();
  from.Freeze();
  to.Begin(Message(Pattern(10, 2)));
  to.Advance();
  EXPECT_TRUE(from.Next(SIZE_MAX));
  EXPECT_FALSE(from.Next(SIZE_MAX));
}

TEST_F(Ring, TheLengthOfASegmentIsSealed) {
  EXPECT_NE(ftruncate(fd.get(), 4096), 0);
  EXPECT_NE(ftruncate(fd.get(), 2 * Segment::kBytes), 0);
  EXPECT_NO_THROW(Segment::Attach(fd));
  const Descriptor unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
      file(open("/dev/null", O_RDWR | O_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), Segment::kBytes), 0);
  EXPECT_THROW(Segment::Attach(unsealed), Error);
  EXPECT_THROW(Segment::Attach(file), Error);
}

}  // namespace
}  // namespace trireme
