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
  Descriptor Connect() const {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    Path().copy(to.sun_path, sizeof(to.sun_path) - 1);
    Descriptor client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
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
