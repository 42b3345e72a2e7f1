// SPDX-License-Identifier: Apache-2.0
// Which of this host's addresses its peers can reach.
// Why: Gloo resolves the host's own name, which on Debian is 127.0.1.1, and then nobody can connect.
#pragma once

#include <string>

namespace mlnet::torch_backend {

/// The source address that the routing table picks towards `host`; empty if there is no route or no such host.
std::string LocalAddressTowards(const std::string& host);

/// $GLOO_SOCKET_IFNAME aside: of the interfaces that $MLNET_IFNAME, else $NCCL_SOCKET_IFNAME, allows, the one that leads
/// to $MASTER_ADDR, else the first that is up. Without the variables docker's bridges and the loopback come last.
/// Throws std::runtime_error, with the interfaces there are, where a variable is wrong or allows none of them.
std::string ReachableAddress();

}  // namespace mlnet::torch_backend
