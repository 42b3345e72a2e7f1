// SPDX-License-Identifier: Apache-2.0
// The veth pair by which ranks reach the aggregator of their own host: packets to the local address leave by
// `mlnet0` and meet the XDP program on `mlnet1`, as those of other hosts meet it on the NIC.
// Why a pair: a packet to an address of this host would take the loopback, where no XDP program sees it. So the
// local address is never assigned; a route and a permanent neighbour lead to it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "mlnet/error.h"

namespace mlnet::datapath {

inline constexpr const char* kLocalLinkOuter = "mlnet0";  // the ranks' end
inline constexpr const char* kLocalLinkInner = "mlnet1";  // the aggregator's end

/// Owns the pair: made here, removed with it.
class LocalLink {
 public:
  /// A pair that an earlier daemon of the same `instance` left behind is taken over if its programs run on, else replaced.
  /// kConflict when the names belong to something else.
  static Result<LocalLink> Create(int mtu, const std::string& instance, bool takes_over);
  /// Removes the pair that a daemon of this instance left behind, if there is one.
  static void Remove(const std::string& instance);
  /// Packets to `address`, of no network of this host, take the pair.
  Result<void> Lead(const std::string& address) const;
  LocalLink(LocalLink&& other) noexcept : outer_ifindex_(std::exchange(other.outer_ifindex_, 0)) {}
  LocalLink& operator=(LocalLink&&) = delete;
  ~LocalLink();

 private:
  explicit LocalLink(int outer_ifindex) : outer_ifindex_(outer_ifindex) {}
  int outer_ifindex_;
};

}  // namespace mlnet::datapath
