// SPDX-License-Identifier: Apache-2.0
// One packet in, one packet out: whole, with its descriptors, and no more memory than it needs.
#include "rpc/seqpacket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/message.h"

namespace mlnet::rpc {
namespace {

struct Ends {
  Ends() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    one = Fd(fds[0]);
    other = Fd(fds[1]);
  }
  Fd one, other;
};

TEST(seqpacket, packets_come_one_by_one_with_their_descriptors) {
  const Ends ends;
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::string longest(kMessageBytesMax, 'x');
  const int fds[] = {null.get(), null.get()};
  ASSERT_EQ(SendPacket(ends.one.get(), "first", fds).value(), IoState::kDone);
  ASSERT_EQ(SendPacket(ends.one.get(), longest, {}).value(), IoState::kDone);
  Packet packet;
  ASSERT_EQ(ReceivePacket(ends.other.get(), packet).value(), IoState::kDone);
  EXPECT_EQ(packet.bytes, "first");
  ASSERT_EQ(packet.fds.size(), 2u);
  for (const Fd& fd : packet.fds) EXPECT_EQ(::fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
  ASSERT_EQ(ReceivePacket(ends.other.get(), packet).value(), IoState::kDone);
  EXPECT_EQ(packet.bytes, longest);
  EXPECT_TRUE(packet.fds.empty());
}

TEST(seqpacket, looking_at_nothing_and_at_a_short_packet_takes_no_room_for_the_longest) {
  const Ends ends;
  Packet packet;
  ASSERT_EQ(ReceivePacket(ends.other.get(), packet).value(), IoState::kWouldBlock);
  EXPECT_LT(packet.bytes.capacity(), 4096u);
  ASSERT_EQ(SendPacket(ends.one.get(), std::string(100, 'y'), {}).value(), IoState::kDone);
  ASSERT_EQ(ReceivePacket(ends.other.get(), packet).value(), IoState::kDone);
  EXPECT_EQ(packet.bytes.size(), 100u);
  EXPECT_LT(packet.bytes.capacity(), 4096u);
}

TEST(seqpacket, what_is_too_long_is_an_error_and_an_end_is_one_after_what_was_sent) {
  Ends ends;
  const std::string too_long(kMessageBytesMax + 1, 'z');
  ASSERT_EQ(::send(ends.one.get(), too_long.data(), too_long.size(), 0), static_cast<ssize_t>(too_long.size()));
  ASSERT_EQ(SendPacket(ends.one.get(), "last", {}).value(), IoState::kDone);
  ends.one = Fd();
  Packet packet;
  const auto refused = ReceivePacket(ends.other.get(), packet);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kProtocol);
  ASSERT_EQ(ReceivePacket(ends.other.get(), packet).value(), IoState::kDone);
  EXPECT_EQ(packet.bytes, "last");
  EXPECT_EQ(ReceivePacket(ends.other.get(), packet).value(), IoState::kClosed);
}

}  // namespace
}  // namespace mlnet::rpc
