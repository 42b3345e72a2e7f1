// SPDX-License-Identifier: Apache-2.0
// The plain sockets of the multicast side: membership of a group, and PINGs to it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.h"
#include "mlnet/mac.h"
#include "mlnet/error.h"

namespace mlnet::daemon {

/// While it lives the kernel answers IGMP or MLD queries and the NIC lets the group's frames in.
class Membership {
 public:
  static Result<Membership> Take(const std::string& group, int ifindex);
  int fd() const { return socket_.get(); }

 private:
  explicit Membership(Fd socket) : socket_(std::move(socket)) {}
  Fd socket_;
};

struct Ping {
  std::string group;  // or a single host
  std::string from;  // own address, of the same family
  int ifindex = 0;   // of the NIC that multicast leaves by
  uint16_t port = 0;
  uint16_t job = 0;
  uint16_t epoch = 0;
  uint8_t tree = 0;
  uint64_t nonce = 0;
  std::shared_ptr<const mlnet_key> key{};  // of a job whose packets have a tag
};
Result<void> SendPing(const Ping& ping);

}  // namespace mlnet::daemon
