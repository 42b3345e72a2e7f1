// SPDX-License-Identifier: Apache-2.0
#include "control/nic_path.h"

#include <algorithm>
#include <string_view>

namespace mlnet::control {
namespace {

const Link* ByName(const std::vector<Link>& links, const std::string& name) {
  const auto it = std::find_if(links.begin(), links.end(), [&](const Link& l) { return l.name == name; });
  return it == links.end() ? nullptr : &*it;
}

const Link* ByIndex(const std::vector<Link>& links, int ifindex) {
  const auto it = std::find_if(links.begin(), links.end(), [&](const Link& l) { return l.ifindex == ifindex; });
  return ifindex == 0 || it == links.end() ? nullptr : &*it;
}

std::vector<std::string> MembersOf(const std::vector<Link>& links, const Link& master) {
  std::vector<std::string> names;
  for (const Link& link : links) {
    if (link.master == master.ifindex) names.push_back(link.name);
  }
  return names;
}

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

std::string ParentOf(const std::vector<Link>& links, const Link& link) {
  const Link* parent = ByIndex(links, link.below);
  return parent == nullptr ? "a NIC of another namespace" : parent->name;
}

bool IsPlain(const Link& link) { return link.kind.empty() || link.kind == "veth"; }

std::string PlainNics(const std::vector<Link>& links) {
  std::vector<std::string> names;
  for (const Link& link : links) {
    if (IsPlain(link) && !link.is_loopback && link.master == 0) names.push_back(link.name);
  }
  return Listed(names);
}

struct BondMode {
  const char* name;
  bool can_send;  // from XDP; the others have no rule for frames that are not the stack's
};

constexpr BondMode kBondModes[] = {{"balance-rr", true}, {"active-backup", true}, {"balance-xor", true}, {"broadcast", false},
                                   {"802.3ad", true},    {"balance-tlb", false},  {"balance-alb", false}};

Result<NicPath> PathOfBond(const std::vector<Link>& links, const Link& bond) {
  const auto members = MembersOf(links, bond);
  if (members.empty()) {
    return Err(ErrorCode::kUnavailable, bond.name + " is a bond without members",
               "give it one: ip link set NIC down; ip link set NIC master " + bond.name);
  }
  const BondMode mode = bond.bond_mode < std::size(kBondModes) ? kBondModes[bond.bond_mode] : BondMode{"unknown", false};
  if (mode.can_send) return NicPath{members, "", ""};
  return NicPath{{bond.name},
                 bond.name + " is a bond in mode " + mode.name + ", which takes no frames from XDP",
                 "set the bond to 802.3ad, active-backup, balance-xor or balance-rr"};
}

struct Kind {
  std::string_view kind;
  const char* what;
};

// Work in generic mode: frames reach XDP after the kernel has given them to this interface.
constexpr Kind kGenericKinds[] = {{"macvlan", "a macvlan"}, {"bridge", "a bridge"}, {"team", "a team"}};

// Frames of other hosts do not come by these, or they are somebody else's.
constexpr Kind kRefusedKinds[] = {{"ipvlan", "an ipvlan, which shares its parent's link address"},
                                  {"ipvtap", "an ipvtap, the end of a virtual machine"},
                                  {"macvtap", "a macvtap, the end of a virtual machine"},
                                  {"tun", "a tun or tap, the end of a process or virtual machine"},
                                  {"dummy", "a dummy, which leads nowhere"},
                                  {"ifb", "an ifb, which leads nowhere"},
                                  {"vxlan", "a tunnel"},
                                  {"geneve", "a tunnel"},
                                  {"gre", "a tunnel"},
                                  {"gretap", "a tunnel"},
                                  {"ipip", "a tunnel"},
                                  {"sit", "a tunnel"},
                                  {"wireguard", "a tunnel"},
                                  {"vrf", "a VRF: its members carry the packets"}};

template <size_t N>
const char* Find(const Kind (&kinds)[N], const std::string& kind) {
  const auto it = std::find_if(std::begin(kinds), std::end(kinds), [&](const Kind& k) { return k.kind == kind; });
  return it == std::end(kinds) ? nullptr : it->what;
}

// A member sees the packets, but address, neighbours and multicast are its master's.
Result<void> CheckMaster(const std::vector<Link>& links, const Link& link) {
  const Link* master = ByIndex(links, link.master);
  if (master == nullptr || master->kind == "vrf") return {};
  const std::string what = link.name + " belongs to the " + master->kind + " " + master->name + ", which has its address";
  if (master->kind == "bond") return Err(ErrorCode::kUnsupported, what, "attach the bond: mlnetctl iface attach " + master->name);
  return Err(ErrorCode::kUnsupported, what,
             "use a NIC that belongs to nothing, or in generic mode the whole: mlnetctl iface attach " + master->name + " --mode generic");
}

}  // namespace

Result<NicPath> FindNicPath(const std::vector<Link>& links, const std::string& name) {
  const Link* link = ByName(links, name);
  if (link == nullptr) {
    std::vector<std::string> names;
    for (const Link& other : links) {
      if (!other.is_loopback) names.push_back(other.name);
    }
    return Err(ErrorCode::kUnavailable, "there is no interface '" + name + "'", "interfaces here: " + Listed(names));
  }
  const std::string use_nic = "attach a NIC that leads to the other hosts; here: " + PlainNics(links);
  if (link->is_loopback) return Err(ErrorCode::kUnsupported, name + " is the loopback: no packet of another host comes by it", use_nic);
  if (auto ok = CheckMaster(links, *link); !ok) return tl::make_unexpected(ok.error());
  if (link->kind == "bond") return PathOfBond(links, *link);
  if (const char* what = Find(kRefusedKinds, link->kind)) {
    return Err(ErrorCode::kUnsupported, name + " is " + what, use_nic);
  }
  if (link->kind == "vlan") {
    const std::string parent = ParentOf(links, *link), id = std::to_string(link->vlan_id);
    const bool may_have_vfs = ByIndex(links, link->below) != nullptr && ByIndex(links, link->below)->kind.empty();
    return NicPath{{name},
                   name + " is VLAN " + id + " on " + parent + ", where the driver's XDP sees the packets with their tag, which mlnet does not read",
                   "let the switch handle the tag (an untagged port)" +
                       (may_have_vfs ? ", or the NIC (a virtual function: ip link set " + parent + " vf 0 vlan " + id + ")" : "")};
  }
  if (const char* what = Find(kGenericKinds, link->kind)) {
    const std::string on = link->below == 0 ? "" : " on " + ParentOf(links, *link);
    return NicPath{{name}, name + " is " + what + on + ", which has no XDP of a driver", use_nic};
  }
  return NicPath{{name}, "", ""};
}

}  // namespace mlnet::control
