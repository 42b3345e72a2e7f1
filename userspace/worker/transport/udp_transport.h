// SPDX-License-Identifier: Apache-2.0
// Transport over UDP sockets and the mapped inbox: one socket a flow (its aggregator, its DSCP), packets handed over
// by the batch as UDP GSO. Nothing is ever received on the sockets: results arrive in the inbox.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "config.h"
#include "transport/inbox.h"
#include "transport/transport.h"

namespace mlnet::worker {

/// Of one tree.
struct UdpEndpoints {
  std::string local_address;  // both of one family
  std::string aggregator_address;
  uint16_t port = MLNET_UDP_PORT;
};

class UdpTransport final : public Transport {
 public:
  /// Opens a socket for each open pool of `config`; `endpoints` by tree.
  static Result<std::unique_ptr<UdpTransport>> Open(const std::vector<UdpEndpoints>& endpoints,
                                                    const EngineConfig& config, Inbox inbox);

  Result<void> Send(size_t flow, std::span<const std::byte> packets, size_t packet_bytes) override;
  void SetDscp(int dscp) override;
  const mlnet_cell* Cells() const override { return inbox_.cells(); }
  bool NextNotice(mlnet_notice& notice) override { return inbox_.NextNotice(notice); }
  Inbox& inbox() { return inbox_; }

 private:
  struct Flow {
    Fd socket;
    std::string peer;  // "10.77.0.5:28012", "[fd77::5]:28012"
    bool is_ipv6 = false;
  };

  explicit UdpTransport(Inbox inbox) : inbox_(std::move(inbox)) {}

  static Result<Flow> OpenFlow(const UdpEndpoints& endpoints, int traffic_class);
  Result<void> SendBatch(const Flow& flow, std::span<const std::byte> packets, size_t packet_bytes);
  Result<void> SendOneByOne(const Flow& flow, std::span<const std::byte> packets, size_t packet_bytes);
  static Error SendError(const Flow& flow, int error_number);

  Inbox inbox_;
  std::vector<Flow> flows_;  // by FlowOf
  bool has_gso_ = true;
};

}  // namespace mlnet::worker
