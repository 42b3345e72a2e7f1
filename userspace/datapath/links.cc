// SPDX-License-Identifier: Apache-2.0
#include "datapath/links.h"

#include <net/if.h>
#include <linux/if_link.h>

#include "datapath/netlink.h"

namespace mlnet::datapath {
namespace {

void ForEachNested(const nlattr* nest, std::function<void(const nlattr*)> take) {
  const mnl_attr_cb_t on_attribute = [](const nlattr* attribute, void* to) {
    (*static_cast<std::function<void(const nlattr*)>*>(to))(attribute);
    return MNL_CB_OK;
  };
  mnl_attr_parse_nested(nest, on_attribute, &take);
}

void ReadKindData(const nlattr* data, Link& link) {
  ForEachNested(data, [&](const nlattr* attribute) {
    const int type = mnl_attr_get_type(attribute);
    if (link.kind == "vlan" && type == IFLA_VLAN_ID) link.vlan_id = mnl_attr_get_u16(attribute);
    if (link.kind == "bond" && type == IFLA_BOND_MODE) link.bond_mode = mnl_attr_get_u8(attribute);
  });
}

void ReadKind(const nlattr* info, Link& link) {
  const nlattr* data = nullptr;
  ForEachNested(info, [&](const nlattr* attribute) {
    if (mnl_attr_get_type(attribute) == IFLA_INFO_KIND) link.kind = mnl_attr_get_str(attribute);
    if (mnl_attr_get_type(attribute) == IFLA_INFO_DATA) data = attribute;
  });
  if (data != nullptr) ReadKindData(data, link);
}

Link ReadLink(const nlmsghdr* answer) {
  Link link;
  const auto& info = *static_cast<const ifinfomsg*>(mnl_nlmsg_get_payload(answer));
  link.ifindex = info.ifi_index;
  link.is_loopback = (info.ifi_flags & IFF_LOOPBACK) != 0;
  bool is_below_elsewhere = false;
  ForEachAttribute(answer, sizeof(ifinfomsg), [&](const nlattr* attribute) {
    switch (mnl_attr_get_type(attribute)) {
      case IFLA_IFNAME: link.name = mnl_attr_get_str(attribute); break;
      case IFLA_MASTER: link.master = static_cast<int>(mnl_attr_get_u32(attribute)); break;
      case IFLA_LINK: link.below = static_cast<int>(mnl_attr_get_u32(attribute)); break;
      case IFLA_LINK_NETNSID: is_below_elsewhere = true; break;
      case IFLA_LINKINFO: ReadKind(attribute, link); break;
      default: break;
    }
  });
  if (is_below_elsewhere) link.below = 0;
  return link;
}

}  // namespace

Result<std::vector<Link>> ReadLinks() {
  NetlinkRequest request(RTM_GETLINK, NLM_F_DUMP);
  request.Put<ifinfomsg>().ifi_family = AF_UNSPEC;
  std::vector<Link> links;
  auto asked = request.Ask("list the interfaces", [&](const nlmsghdr* answer) { links.push_back(ReadLink(answer)); });
  if (!asked) return tl::make_unexpected(asked.error());
  return links;
}

}  // namespace mlnet::datapath
