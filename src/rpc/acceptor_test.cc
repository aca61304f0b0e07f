// Connections before they are gRPC's.
#include "trireme/rpc/acceptor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iterator>

#include "trireme/rpc/test_util.h"

namespace trireme {
namespace {

class AcceptorTest : public testing::Test {
 protected:
  AcceptorTest() : acceptor_("unix:" + Path()) {
    acceptor_.Start([this](int fd) {
      char word = '0';
      EXPECT_EQ(recv(fd, &word, 1, 0), 1);
      ::close(fd);
      handed_ += word - '0';
    });
  }
  std::string Path() const { return folder_.path() + "/socket"; }
  Descriptor Connect() const { return ConnectTo(Path()); }
  static Descriptor ConnectTo(const std::string& path) {
    const sockaddr_un to = UnixName(path);
    Descriptor client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    return client;
  }
  static void Say(const Descriptor& client, char word) {
    EXPECT_EQ(::send(client.get(), &word, 1, MSG_NOSIGNAL), 1);
  }
  static std::ptrdiff_t OpenDescriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  }

  TempFolder folder_;
  std::atomic<int> handed_ = 0;  // sum of the digits that those handed over have said
  Acceptor acceptor_;
};

TEST_F(AcceptorTest, HandsOverWhoHasSomethingToSayAndKeepsTheOthers) {
  const Descriptor silent = Connect(), first = Connect();
  Say(first, '1');
  EXPECT_TRUE(Eventually([&] { return handed_ == 1; }));
  const Descriptor second = Connect();
  Say(second, '2');
  EXPECT_TRUE(Eventually([&] { return handed_ == 3; }));
  Say(silent, '4');  // at last
  EXPECT_TRUE(Eventually([&] { return handed_ == 7; }));
}

// They wait for the rest, as those do who have said nothing; nobody else does.
TEST_F(AcceptorTest, WhoHasSaidTooLittleIsNotHandedOver) {
  const std::string path = folder_.path() + "/other";
  std::atomic<int> handed = 0;
  Acceptor acceptor("unix:" + path);
  acceptor.Start(
      [&](int fd) {
        ::close(fd);
        ++handed;
      },
      /*fewest=*/3);
  const Descriptor little = ConnectTo(path), gone = ConnectTo(path), much = ConnectTo(path);
  for (int i = 0; i < 2; ++i) Say(little, '1');
  Say(gone, '1');
  shutdown(gone.get(), SHUT_RDWR);
  for (int i = 0; i < 3; ++i) Say(much, '1');
  EXPECT_TRUE(Eventually([&] { return handed == 1; }));
  Say(little, '1');
  EXPECT_TRUE(Eventually([&] { return handed == 2; }));
}

TEST_F(AcceptorTest, WhoLeavesWithoutAWordTakesNoDescriptorAndIsNotHandedOver) {
  const std::ptrdiff_t before = OpenDescriptors();
  for (int i = 0; i < 50; ++i) Connect();
  const Descriptor last = Connect();
  Say(last, '1');
  EXPECT_TRUE(Eventually([&] { return handed_ == 1; }));
  // Those that came before it have been seen to leave before it was heard.
  EXPECT_EQ(OpenDescriptors(), before + 1);
}

}  // namespace
}  // namespace trireme
