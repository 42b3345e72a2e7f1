// SPDX-License-Identifier: Apache-2.0
#include "datapath/local_link.h"

#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/veth.h>
#include <net/if.h>

#include <array>
#include <functional>
#include <utility>

#include "base/ip_address.h"
#include "datapath/netdev.h"
#include "datapath/netlink.h"

namespace mlnet::datapath {
namespace {

// Says whose the pair is.
std::string AliasOf(const std::string& instance) { return "mlnetd " + instance; }

std::string ReadAlias(int ifindex) {
  NetlinkRequest request(RTM_GETLINK, 0);
  request.Put<ifinfomsg>().ifi_index = ifindex;
  std::string alias;
  auto asked = request.Ask("read the alias of an interface", [&](const nlmsghdr* answer) {
    ForEachAttribute(answer, sizeof(ifinfomsg), [&](const nlattr* attribute) {
      if (mnl_attr_get_type(attribute) == IFLA_IFALIAS) alias = mnl_attr_get_str(attribute);
    });
  });
  return asked ? alias : "";
}

Result<void> MakePair(int mtu) {
  NetlinkRequest request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
  nlmsghdr* header = request.header();
  request.Put<ifinfomsg>().ifi_family = AF_UNSPEC;
  mnl_attr_put_strz(header, IFLA_IFNAME, kLocalLinkOuter);
  mnl_attr_put_u32(header, IFLA_MTU, static_cast<uint32_t>(mtu));
  nlattr* info = mnl_attr_nest_start(header, IFLA_LINKINFO);
  mnl_attr_put_strz(header, IFLA_INFO_KIND, "veth");
  nlattr* data = mnl_attr_nest_start(header, IFLA_INFO_DATA);
  nlattr* peer = mnl_attr_nest_start(header, VETH_INFO_PEER);
  request.Put<ifinfomsg>().ifi_family = AF_UNSPEC;
  mnl_attr_put_strz(header, IFLA_IFNAME, kLocalLinkInner);
  mnl_attr_put_u32(header, IFLA_MTU, static_cast<uint32_t>(mtu));
  mnl_attr_nest_end(header, peer);
  mnl_attr_nest_end(header, data);
  mnl_attr_nest_end(header, info);
  return request.Send(std::string("create the veth pair ") + kLocalLinkOuter + ", " + kLocalLinkInner);
}

Result<void> SetUp(int ifindex, const std::string& alias) {
  NetlinkRequest request(RTM_NEWLINK, 0);
  auto& link = request.Put<ifinfomsg>();
  link.ifi_index = ifindex;
  link.ifi_flags = link.ifi_change = IFF_UP;
  mnl_attr_put_strz(request.header(), IFLA_IFALIAS, alias.c_str());  // the kernel ignores it where it makes a link
  // The program meets packets, not the segments of many in one buffer. Native mode sees to that itself.
  mnl_attr_put_u32(request.header(), IFLA_GSO_MAX_SEGS, 1);
  // No IPv6 chatter on it.
  nlattr* spec = mnl_attr_nest_start(request.header(), IFLA_AF_SPEC);
  nlattr* inet6 = mnl_attr_nest_start(request.header(), AF_INET6);
  mnl_attr_put_u8(request.header(), IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
  mnl_attr_nest_end(request.header(), inet6);
  mnl_attr_nest_end(request.header(), spec);
  return request.Send("bring the local link up");
}

Result<void> AddNeighbour(int ifindex, const IpAddress& address, const std::array<uint8_t, 6>& mac) {
  NetlinkRequest request(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE);
  auto& neighbour = request.Put<ndmsg>();
  neighbour.ndm_family = static_cast<uint8_t>(address.family());
  neighbour.ndm_ifindex = ifindex;
  neighbour.ndm_state = NUD_PERMANENT;
  mnl_attr_put(request.header(), NDA_DST, address.bytes().size(), address.bytes().data());
  mnl_attr_put(request.header(), NDA_LLADDR, mac.size(), mac.data());
  return request.Send("add the neighbour of the local link");
}

Result<void> AddRoute(int ifindex, const IpAddress& address) {
  NetlinkRequest request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE);
  auto& route = request.Put<rtmsg>();
  route.rtm_family = static_cast<uint8_t>(address.family());
  route.rtm_dst_len = static_cast<uint8_t>(8 * address.bytes().size());
  route.rtm_table = RT_TABLE_MAIN;
  route.rtm_protocol = RTPROT_STATIC;
  route.rtm_scope = RT_SCOPE_LINK;
  route.rtm_type = RTN_UNICAST;
  mnl_attr_put(request.header(), RTA_DST, address.bytes().size(), address.bytes().data());
  mnl_attr_put_u32(request.header(), RTA_OIF, static_cast<uint32_t>(ifindex));
  return request.Send("route the local address to the local link");
}

Result<void> RemoveLink(int ifindex) {
  NetlinkRequest request(RTM_DELLINK, 0);
  request.Put<ifinfomsg>().ifi_index = ifindex;
  return request.Send("remove the local link");
}

// What a daemon that was killed left behind; the pin folder's lock says that it does not live any more.
Result<void> RemoveLeftover(const std::string& instance) {
  const auto old = ReadNetdev(kLocalLinkOuter);
  if (!old) return {};
  const std::string owner = ReadAlias(old->ifindex);
  if (owner == AliasOf(instance)) return RemoveLink(old->ifindex);
  return Err(ErrorCode::kConflict, std::string("there is an interface ") + kLocalLinkOuter + " of " +
                                       (owner.empty() ? "somebody else" : owner),
             "rename it, or set datapath.local_address and local_address6 to \"\" to go without a local link");
}

}  // namespace

Result<LocalLink> LocalLink::Create(int mtu, const std::string& instance, bool takes_over) {
  const auto old = ReadNetdev(kLocalLinkOuter);
  if (takes_over && old && ReadNetdev(kLocalLinkInner) && ReadAlias(old->ifindex) == AliasOf(instance)) return LocalLink(old->ifindex);
  if (auto ok = RemoveLeftover(instance); !ok) return tl::make_unexpected(ok.error());
  if (auto ok = MakePair(mtu); !ok) return tl::make_unexpected(ok.error());
  const auto outer = ReadNetdev(kLocalLinkOuter), inner = ReadNetdev(kLocalLinkInner);
  if (!outer) return tl::make_unexpected(outer.error());
  LocalLink link(outer->ifindex);
  if (!inner) return tl::make_unexpected(inner.error());
  const std::function<Result<void>()> steps[] = {[&] { return SetUp(outer->ifindex, AliasOf(instance)); },
                                                 [&] { return SetUp(inner->ifindex, AliasOf(instance)); }};
  for (const auto& step : steps) {
    if (auto ok = step(); !ok) return tl::make_unexpected(ok.error());
  }
  return link;
}

Result<void> LocalLink::Lead(const std::string& address) const {
  const auto local = IpAddress::Parse(address);
  if (!local) return Err(ErrorCode::kInvalidArgument, "local address '" + address + "' is no IP address");
  const auto inner = ReadNetdev(kLocalLinkInner);
  if (!inner) return tl::make_unexpected(inner.error());
  if (auto ok = AddRoute(outer_ifindex_, *local); !ok) return ok;
  return AddNeighbour(outer_ifindex_, *local, inner->mac);
}

void LocalLink::Remove(const std::string& instance) { (void)RemoveLeftover(instance); }

LocalLink::~LocalLink() {
  if (outer_ifindex_ != 0) (void)RemoveLink(outer_ifindex_);
}

}  // namespace mlnet::datapath
