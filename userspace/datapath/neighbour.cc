// SPDX-License-Identifier: Apache-2.0
#include "datapath/neighbour.h"

#include <arpa/inet.h>
#include <linux/neighbour.h>

#include <cstring>

#include "datapath/netlink.h"

namespace mlnet::datapath {
namespace {

struct Hop {
  uint32_t address = 0;
  uint32_t ifindex = 0;
};

// The value of a 32-bit attribute, 0 where it is missing.
uint32_t Number(const nlmsghdr* message, unsigned body_bytes, uint16_t type) {
  uint32_t value = 0;
  ForEachAttribute(message, body_bytes, [&](const nlattr* attribute) {
    if (mnl_attr_get_type(attribute) == type && mnl_attr_get_payload_len(attribute) == 4) value = mnl_attr_get_u32(attribute);
  });
  return value;
}

std::optional<Hop> HopTowards(uint32_t address) {
  NetlinkRequest request(RTM_GETROUTE, 0);
  auto& route = request.Put<rtmsg>();
  route.rtm_family = AF_INET;
  route.rtm_dst_len = 32;
  mnl_attr_put_u32(request.header(), RTA_DST, address);
  Hop hop;
  auto asked = request.Ask("look up a route", [&](const nlmsghdr* answer) {
    hop.ifindex = Number(answer, sizeof(rtmsg), RTA_OIF);
    hop.address = Number(answer, sizeof(rtmsg), RTA_GATEWAY);
  });
  if (!asked || hop.ifindex == 0) return std::nullopt;
  if (hop.address == 0) hop.address = address;
  return hop;
}

}  // namespace

std::optional<std::array<uint8_t, 6>> NextHopMac(const std::string& address) {
  in_addr to{};
  if (inet_pton(AF_INET, address.c_str(), &to) != 1) return std::nullopt;
  const auto hop = HopTowards(to.s_addr);
  if (!hop) return std::nullopt;
  NetlinkRequest request(RTM_GETNEIGH, NLM_F_DUMP);
  request.Put<ndmsg>().ndm_family = AF_INET;
  std::optional<std::array<uint8_t, 6>> mac;
  auto asked = request.Ask("list neighbours", [&](const nlmsghdr* answer) {
    const auto* neighbour = static_cast<const ndmsg*>(mnl_nlmsg_get_payload(answer));
    if (static_cast<uint32_t>(neighbour->ndm_ifindex) != hop->ifindex) return;
    if (Number(answer, sizeof(ndmsg), NDA_DST) != hop->address) return;
    ForEachAttribute(answer, sizeof(ndmsg), [&](const nlattr* attribute) {
      if (mnl_attr_get_type(attribute) != NDA_LLADDR || mnl_attr_get_payload_len(attribute) != 6) return;
      std::memcpy(mac.emplace().data(), mnl_attr_get_payload(attribute), 6);
    });
  });
  return asked ? mac : std::nullopt;
}

}  // namespace mlnet::datapath
