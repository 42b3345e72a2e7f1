// SPDX-License-Identifier: Apache-2.0
// Which of this host's addresses its peers can reach.
// Why: Gloo resolves the host's own name, which on Debian is 127.0.1.1, and then nobody can connect.
#pragma once

#include <string>

namespace mlnet::torch_backend {

/// The source address that the routing table picks towards `host`; empty if there is no route or no such host.
std::string LocalAddressTowards(const std::string& host);

/// $GLOO_SOCKET_IFNAME aside: the address towards $MASTER_ADDR, else the first one of an interface that is up
/// and not loopback, else 127.0.0.1.
std::string ReachableAddress();

}  // namespace mlnet::torch_backend
