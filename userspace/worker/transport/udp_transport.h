// SPDX-License-Identifier: Apache-2.0
// Transport over UDP sockets and the mapped inbox: one socket a class (its DSCP), packets handed over
// by the batch as UDP GSO. Nothing is ever received on the sockets: results arrive in the inbox.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/fd.h"
#include "config.h"
#include "transport/inbox.h"
#include "transport/transport.h"

namespace mlnet::worker {

struct UdpEndpoints {
  std::string local_address;  // IPv4
  std::string aggregator_address;
  uint16_t port = MLNET_UDP_PORT;
};

class UdpTransport final : public Transport {
 public:
  /// Opens a socket for each open pool of `config`.
  static Result<std::unique_ptr<UdpTransport>> Open(const UdpEndpoints& endpoints, const EngineConfig& config,
                                                    Inbox inbox);

  Result<void> Send(int traffic_class, std::span<const std::byte> packets, size_t packet_bytes) override;
  const mlnet_cell* Cells() const override { return inbox_.cells(); }
  bool NextNotice(mlnet_notice& notice) override { return inbox_.NextNotice(notice); }
  Inbox& inbox() { return inbox_; }

 private:
  UdpTransport(UdpEndpoints endpoints, Inbox inbox)
      : endpoints_(std::move(endpoints)), inbox_(std::move(inbox)) {}

  Result<void> OpenSocket(int traffic_class);
  Result<void> SendBatch(int socket, std::span<const std::byte> packets, size_t packet_bytes);
  Result<void> SendOneByOne(int socket, std::span<const std::byte> packets, size_t packet_bytes);
  Error SendError(int error_number) const;

  UdpEndpoints endpoints_;
  Inbox inbox_;
  std::array<Fd, MLNET_CLASSES_MAX> sockets_;
  bool has_gso_ = true;
};

}  // namespace mlnet::worker
