// SPDX-License-Identifier: Apache-2.0
#include "datapath/neighbour.h"

#include <linux/neighbour.h>

#include <cstring>

#include "base/ip_address.h"
#include "datapath/netlink.h"

namespace mlnet::datapath {
namespace {

struct Hop {
  IpAddress address;
  uint32_t ifindex = 0;
};

uint32_t Number(const nlmsghdr* message, unsigned body_bytes, uint16_t type) {
  uint32_t value = 0;
  ForEachAttribute(message, body_bytes, [&](const nlattr* attribute) {
    if (mnl_attr_get_type(attribute) == type && mnl_attr_get_payload_len(attribute) == 4) value = mnl_attr_get_u32(attribute);
  });
  return value;
}

// Of the family that the message is about; none where it is missing.
IpAddress AddressIn(const nlmsghdr* message, unsigned body_bytes, uint16_t type) {
  IpAddress address;
  ForEachAttribute(message, body_bytes, [&](const nlattr* attribute) {
    if (mnl_attr_get_type(attribute) != type) return;
    address = IpAddress::FromBytes({static_cast<const uint8_t*>(mnl_attr_get_payload(attribute)), mnl_attr_get_payload_len(attribute)});
  });
  return address;
}

std::optional<Hop> HopTowards(const IpAddress& address) {
  NetlinkRequest request(RTM_GETROUTE, 0);
  auto& route = request.Put<rtmsg>();
  const auto bytes = address.bytes();
  route.rtm_family = static_cast<uint8_t>(address.family());
  route.rtm_dst_len = static_cast<uint8_t>(8 * bytes.size());
  mnl_attr_put(request.header(), RTA_DST, bytes.size(), bytes.data());
  Hop hop;
  auto asked = request.Ask("look up a route", [&](const nlmsghdr* answer) {
    hop.ifindex = Number(answer, sizeof(rtmsg), RTA_OIF);
    hop.address = AddressIn(answer, sizeof(rtmsg), RTA_GATEWAY);
  });
  if (!asked || hop.ifindex == 0) return std::nullopt;
  if (!hop.address.IsSet()) hop.address = address;
  return hop;
}

}  // namespace

std::optional<std::array<uint8_t, 6>> NextHopMac(const std::string& address) {
  const auto to = IpAddress::Parse(address);
  if (!to) return std::nullopt;
  const auto hop = HopTowards(*to);
  if (!hop) return std::nullopt;
  NetlinkRequest request(RTM_GETNEIGH, NLM_F_DUMP);
  request.Put<ndmsg>().ndm_family = static_cast<uint8_t>(to->family());
  std::optional<std::array<uint8_t, 6>> mac;
  auto asked = request.Ask("list neighbours", [&](const nlmsghdr* answer) {
    const auto* neighbour = static_cast<const ndmsg*>(mnl_nlmsg_get_payload(answer));
    if (static_cast<uint32_t>(neighbour->ndm_ifindex) != hop->ifindex) return;
    if (AddressIn(answer, sizeof(ndmsg), NDA_DST) != hop->address) return;
    ForEachAttribute(answer, sizeof(ndmsg), [&](const nlattr* attribute) {
      if (mnl_attr_get_type(attribute) != NDA_LLADDR || mnl_attr_get_payload_len(attribute) != 6) return;
      std::memcpy(mac.emplace().data(), mnl_attr_get_payload(attribute), 6);
    });
  });
  return asked ? mac : std::nullopt;
}

}  // namespace mlnet::datapath
