// SPDX-License-Identifier: Apache-2.0
// One packet with file descriptors over an AF_UNIX SOCK_SEQPACKET socket.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "mlnet/error.h"

namespace mlnet::rpc {

struct Packet {
  std::string bytes;
  std::vector<Fd> fds;  // close-on-exec
};

enum class IoState { kDone, kWouldBlock, kClosed };

/// Sends one packet, never blocking and never raising SIGPIPE.
Result<IoState> SendPacket(int socket, std::string_view bytes, std::span<const int> fds);

/// Receives one packet, never blocking. kProtocol for one that is too long.
Result<IoState> ReceivePacket(int socket, Packet& out);

/// Whether sockaddr_un has room for `path`.
bool UnixAddressFits(std::string_view path);

}  // namespace mlnet::rpc
