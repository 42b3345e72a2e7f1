// SPDX-License-Identifier: Apache-2.0
// What passes an interface, as the network sees it: an AF_PACKET socket, opened inside a namespace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"

namespace mlnet::test {

/// A UDP datagram over IPv4.
struct Seen {
  bool is_out = false;  // of the interface
  uint8_t tos = 0;
  bool is_checksum_right = false;  // of the IP header
  uint16_t port = 0;    // destination
  uint8_t type = 0;     // of an mlnet packet: MLNET_T_*
  uint16_t job = 0;
  uint8_t class_stream = 0;
  bool operator==(const Seen&) const = default;
};

class Capture {
 public:
  /// REQUIRES: called inside the interface's namespace.
  explicit Capture(const std::string& iface);

  /// All since the last call.
  std::vector<Seen> Take();

 private:
  Fd socket_;
};

}  // namespace mlnet::test
