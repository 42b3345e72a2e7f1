// SPDX-License-Identifier: Apache-2.0
#include "datapath/netdev.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/errno_error.h"
#include "base/fd.h"
#include "base/ip_address.h"
#include "datapath/netlink.h"

namespace mlnet::datapath {
namespace {

// Drivers whose speed is a constant, or a sum of such.
constexpr std::string_view kMadeUp[] = {"veth", "tun", "bridge"};

void ReadAddress(Netdev& dev) {
  ifaddrs* head = nullptr;
  if (::getifaddrs(&head) != 0) return;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(head, ::freeifaddrs);
  for (const ifaddrs* a = list.get(); a != nullptr; a = a->ifa_next) {
    if (dev.name != a->ifa_name || a->ifa_addr == nullptr || a->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(a->ifa_addr)->sin_addr, text, sizeof(text));
    dev.address = text;
    if (a->ifa_netmask != nullptr) {
      dev.prefix = std::popcount(reinterpret_cast<const sockaddr_in*>(a->ifa_netmask)->sin_addr.s_addr);
    }
    return;
  }
}

// Not those of the link, temporary ones, and those that are being left or not yet known to be unique.
void ReadAddress6(Netdev& dev) {
  constexpr uint32_t kNotForUs = IFA_F_TEMPORARY | IFA_F_DEPRECATED | IFA_F_TENTATIVE | IFA_F_DADFAILED;
  NetlinkRequest request(RTM_GETADDR, NLM_F_DUMP);
  request.Put<ifaddrmsg>().ifa_family = AF_INET6;
  (void)request.Ask("list addresses", [&](const nlmsghdr* answer) {
    const auto* entry = static_cast<const ifaddrmsg*>(mnl_nlmsg_get_payload(answer));
    if (!dev.address6.empty() || static_cast<int>(entry->ifa_index) != dev.ifindex || entry->ifa_scope != RT_SCOPE_UNIVERSE) return;
    uint32_t flags = entry->ifa_flags;
    IpAddress::Mapped bytes{};
    ForEachAttribute(answer, sizeof(ifaddrmsg), [&](const nlattr* attribute) {
      if (mnl_attr_get_type(attribute) == IFA_FLAGS) flags = mnl_attr_get_u32(attribute);
      if (mnl_attr_get_type(attribute) == IFA_ADDRESS && mnl_attr_get_payload_len(attribute) == bytes.size()) {
        std::memcpy(bytes.data(), mnl_attr_get_payload(attribute), bytes.size());
      }
    });
    if ((flags & kNotForUs) != 0) return;
    dev.address6 = IpAddress(bytes).ToString();
    dev.prefix6 = entry->ifa_prefixlen;
  });
}

void ReadEthtool(int socket, ifreq request, Netdev& dev) {
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  request.ifr_data = reinterpret_cast<char*>(&info);
  if (::ioctl(socket, SIOCETHTOOL, &request) == 0) dev.driver = info.driver;
  if (std::find(std::begin(kMadeUp), std::end(kMadeUp), dev.driver) != std::end(kMadeUp)) return;
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  request.ifr_data = reinterpret_cast<char*>(&settings);
  if (::ioctl(socket, SIOCETHTOOL, &request) != 0) return;
  const __u32 speed = ethtool_cmd_speed(&settings);
  if (speed != static_cast<__u32>(SPEED_UNKNOWN)) dev.speed_mbps = static_cast<int>(speed);
}

}  // namespace

std::vector<std::string> NetdevNames() {
  std::vector<std::string> names;
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> list(::if_nameindex(), ::if_freenameindex);
  for (const auto* i = list.get(); i != nullptr && i->if_index != 0; ++i) {
    if (std::string(i->if_name) != "lo") names.emplace_back(i->if_name);
  }
  return names;
}

Result<Netdev> ReadNetdev(const std::string& name) {
  Netdev dev;
  dev.name = name;
  dev.ifindex = name.size() < IFNAMSIZ ? static_cast<int>(::if_nametoindex(name.c_str())) : 0;
  if (dev.ifindex == 0) {
    std::string known;
    for (const std::string& other : NetdevNames()) known += (known.empty() ? "" : ", ") + other;
    return Err(ErrorCode::kUnavailable, "there is no interface '" + name + "'",
               "interfaces here: " + (known.empty() ? "none" : known));
  }
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  if (::ioctl(socket.get(), SIOCGIFMTU, &request) != 0) return tl::make_unexpected(ErrnoError("MTU of " + name, errno));
  dev.mtu = request.ifr_mtu;
  if (::ioctl(socket.get(), SIOCGIFFLAGS, &request) == 0) dev.is_up = (request.ifr_flags & IFF_UP) != 0;
  if (::ioctl(socket.get(), SIOCGIFHWADDR, &request) == 0) {
    std::memcpy(dev.mac.data(), request.ifr_hwaddr.sa_data, dev.mac.size());
  }
  ReadEthtool(socket.get(), request, dev);
  ReadAddress(dev);
  ReadAddress6(dev);
  return dev;
}

}  // namespace mlnet::datapath
