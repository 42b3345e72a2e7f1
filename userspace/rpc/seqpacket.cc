// SPDX-License-Identifier: Apache-2.0
#include "rpc/seqpacket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/errno_error.h"
#include "rpc/message.h"

namespace mlnet::rpc {
namespace {

union ControlBuffer {
  cmsghdr header;  // for alignment
  char bytes[CMSG_SPACE(sizeof(int) * kMessageFdsMax)];
};

bool IsClosed(int err) { return err == EPIPE || err == ECONNRESET || err == ENOTCONN; }

void TakeFds(msghdr& message, std::vector<Fd>& out) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      out.emplace_back(fd);
    }
  }
}

// Of the next packet, which stays where it is; 0 if the other end is closed, -1 with errno set if there is none.
ssize_t NextLength(int socket) {
  ssize_t length;
  do {
    length = ::recv(socket, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  } while (length < 0 && errno == EINTR);
  return length;
}

Result<IoState> ReceiveFailure(int err) {
  if (err == EAGAIN || err == EWOULDBLOCK) return IoState::kWouldBlock;
  if (IsClosed(err)) return IoState::kClosed;
  return tl::make_unexpected(ErrnoError("recvmsg on the RPC socket", err));
}

}  // namespace

bool UnixAddressFits(std::string_view path) { return !path.empty() && path.size() < sizeof(sockaddr_un::sun_path); }

Result<IoState> SendPacket(int socket, std::string_view bytes, std::span<const int> fds) {
  if (bytes.size() > kMessageBytesMax || fds.size() > kMessageFdsMax) {
    return Err(ErrorCode::kProtocol, "a message is longer than the protocol allows");
  }
  iovec iov{const_cast<char*>(bytes.data()), bytes.size()};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  for (;;) {
    if (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return IoState::kDone;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return IoState::kWouldBlock;
    if (IsClosed(errno)) return IoState::kClosed;
    return tl::make_unexpected(ErrnoError("sendmsg on the RPC socket", errno));
  }
}

Result<IoState> ReceivePacket(int socket, Packet& out) {
  out.fds.clear();
  // A rank looks every other millisecond, mostly at nothing: room for the longest message would be cleared each time.
  const ssize_t length = NextLength(socket);
  if (length < 0) return ReceiveFailure(errno);
  out.bytes.resize(std::min(static_cast<size_t>(length), kMessageBytesMax));
  iovec iov{out.bytes.data(), out.bytes.size()};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  ssize_t got;
  do {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return ReceiveFailure(errno);
  TakeFds(message, out.fds);
  if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
    return Err(ErrorCode::kProtocol, "a message is longer than the protocol allows");
  }
  if (got == 0) return IoState::kClosed;
  out.bytes.resize(static_cast<size_t>(got));
  return IoState::kDone;
}

}  // namespace mlnet::rpc
