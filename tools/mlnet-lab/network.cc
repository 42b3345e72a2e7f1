// SPDX-License-Identifier: Apache-2.0
#include "network.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "base/errno_error.h"
#include "hysteresis.h"
#include "netns.h"

namespace mlnet::lab {
namespace {

// A burst must hold one segmentation-offload super-packet, or each would wait for the one before to be paid;
// and it must fit the 256-frame ring of a veth whose NIC runs XDP.
constexpr uint64_t kBurstBytesMin = 80 * 1024;
constexpr uint64_t kBurstBytesMax = 256 * 1024;
// What may stand in front of one port: the pools (256 full packets) of all other hosts at once.
constexpr uint64_t kPoolPackets = 256;
constexpr uint64_t kQueueBytesMin = 1024 * 1024;

// /proc/sys/net belongs to the namespace of who opens it. A missing file is a feature this kernel lacks.
void WriteSysctl(const std::string& name, const std::string& value) {
  std::ofstream("/proc/sys/net/" + name) << value;
}

Result<void> PrepareNamespace(const Paths& paths, const std::string& host, bool ipv6) {
  return InNetns(paths.NetnsFile(host), [ipv6] {
    // Frames must not pass the host's firewall rules: it costs CPU and would be no switch.
    for (const char* family : {"iptables", "ip6tables", "arptables"}) {
      WriteSysctl(std::string("bridge/bridge-nf-call-") + family, "0");
    }
    // Nobody may chatter on the links (router solicitations, duplicate address detection). Neighbour discovery is real.
    WriteSysctl("ipv6/conf/all/disable_ipv6", ipv6 ? "0" : "1");
    WriteSysctl("ipv6/conf/default/disable_ipv6", ipv6 ? "0" : "1");
    WriteSysctl("ipv6/conf/default/accept_dad", "0");
    WriteSysctl("ipv6/conf/default/accept_ra", "0");
    WriteSysctl("ipv6/conf/default/router_solicitations", "0");
    return Result<void>{};
  });
}

std::string BridgeName(const std::string& rack) { return "b-" + rack; }

std::string Bridge(const Topology& topology, const std::string& name, int index) {
  return fmt::format("link add {} index {} type bridge stp_state 0 forward_delay 0 mcast_snooping {}\n", name, index,
                     topology.multicast_snooping ? 1 : 0);
}

// The rack's bridge, and a veth pair to the core: port p-RACK on the core's side is made like that of a host.
std::string RackLinks(const Topology& topology, const Rack& rack, int i) {
  const std::string bridge = BridgeName(rack.name), port = PortName(rack.name), inner = "u-" + rack.name;
  const int link = static_cast<int>(topology.hosts.size()) + i;
  return Bridge(topology, bridge, kBridgeIndexBase + i) +
         fmt::format(
             "link add name {0} index {1} mtu {2} type veth peer name {3} index {4} mtu {2}\n"
             "link set {0} master br0 up\nlink set {3} master {5} up\nlink set {5} up\n",
             port, kPortIndexBase + link, topology.mtu, inner, kInnerIndexBase + i, bridge);
}

// An ifb for what comes in. A rack's uplink has one at any rate, since its queue counts the bytes.
bool HasShaper(const Topology& topology, size_t link) {
  return link >= topology.hosts.size() || topology.hosts[link].rate_bps != 0;
}

std::string SwitchLinks(const Paths& paths, const Topology& topology) {
  std::string out = "link set lo up\n" + Bridge(topology, "br0", 2);
  int i = 0;
  for (const auto& rack : topology.racks) out += RackLinks(topology, rack, i++);
  i = 0;
  for (const auto& host : topology.hosts) {
    const std::string port = PortName(host.name);
    out +=
        fmt::format("link add name {} index {} mtu {} type veth peer name eth0 address {} mtu {} netns {}\n",
                    port, kPortIndexBase + i++, topology.mtu, host.mac, topology.mtu, paths.Netns(host.name));
    out += fmt::format("link set {} master {} up\n", port, host.rack.empty() ? "br0" : BridgeName(host.rack));
  }
  const auto links = LinksOf(topology);
  for (size_t link = 0; link < links.size(); ++link) {
    if (!HasShaper(topology, link)) continue;
    const std::string shaper = ShaperName(links[link].name);
    out += fmt::format("link add name {} index {} mtu {} type ifb\n", shaper, kShaperIndexBase + static_cast<int>(link),
                       topology.mtu);
    out += fmt::format("link set {} up\n", shaper);
  }
  return out + "link set br0 up\n";
}

// Bands by IP precedence, CS7 first; "lower effort" (DSCP 1) has the last place of its own, though htb has eight levels
// only: in the last one it gets what its small quantum leaves it. Each band may have all of the rate.
std::string PriorityBands(const std::string& device, uint64_t rate_bps, const Shaping& shaping) {
  constexpr int kBands = 8;
  std::string out = fmt::format(
      "qdisc add dev {0} root handle 1: htb default 17\n"
      "class add dev {0} parent 1: classid 1:1 htb rate {1}bit burst {2} cburst {2} quantum 60000\n",
      device, rate_bps, shaping.burst_bytes);
  for (int band = 0; band <= kBands; ++band) {
    out += fmt::format(
        "class add dev {0} parent 1:1 classid 1:1{1} htb rate {2}bit ceil {3}bit burst 1600 cburst {4} prio {5} quantum {6}\n"
        "qdisc add dev {0} parent 1:1{1} bfifo limit {7}\n",
        device, band, std::max<uint64_t>(rate_bps / 1000, 8000), rate_bps, shaping.burst_bytes, std::min(band, kBands - 1),
        band < kBands ? 60000 : 1600, shaping.queue_bytes);
  }
  for (const auto& [protocol, field] : {std::pair{"ip", "ip dsfield"}, {"ipv6", "ip6 priority"}}) {
    const int first = std::string(protocol) == "ip" ? 10 : 20;  // a number per protocol and rule
    out += fmt::format("filter add dev {} parent 1: prio {} protocol {} u32 match {} 0x04 0xfc classid 1:18\n", device, first, protocol, field);
    for (int band = 0; band < kBands; ++band) {
      out += fmt::format("filter add dev {} parent 1: prio {} protocol {} u32 match {} 0x{:02x} 0xe0 classid 1:1{}\n", device,
                         first + 1 + band, protocol, field, (kBands - 1 - band) << 5, band);
    }
  }
  return out;
}

// One class for everything. htb with hysteresis (hysteresis.h) instead of tbf, which arms a timer per packet.
std::string Shaper(const Topology& topology, const std::string& device, uint64_t rate_bps) {
  Shaping shaping = ShapingFor(rate_bps, topology.hosts.size(), topology.mtu);
  if (rate_bps != 0 && topology.queue_kib != 0) shaping.queue_bytes = uint64_t{topology.queue_kib} * 1024;
  // Not idle: with a queue the port waits for room in the veth ring instead of dropping (kernel 6.16 on).
  if (rate_bps == 0) return fmt::format("qdisc add dev {} root bfifo limit {}\n", device, shaping.queue_bytes);
  if (topology.priorities) return PriorityBands(device, rate_bps, shaping);
  return fmt::format(
      "qdisc add dev {0} root handle 1: htb default 1\n"
      "class add dev {0} parent 1: classid 1:1 htb rate {1}bit burst {2} cburst {2} quantum 60000\n"
      "qdisc add dev {0} parent 1:1 bfifo limit {3}\n",
      device, rate_bps, shaping.burst_bytes, shaping.queue_bytes);
}

std::string SwitchShapers(const Topology& topology) {
  std::string out;
  const auto links = LinksOf(topology);
  for (size_t i = 0; i < links.size(); ++i) {
    const std::string port = PortName(links[i].name), shaper = ShaperName(links[i].name);
    out += fmt::format("qdisc add dev {} clsact\n", port) + Shaper(topology, port, links[i].down_bps);
    if (!HasShaper(topology, i)) continue;
    out += Shaper(topology, shaper, links[i].up_bps);
    out += fmt::format(
        "filter add dev {} ingress prio 20 protocol all u32 match u32 0 0 "
        "action mirred egress redirect dev {}\n",
        port, shaper);
  }
  return out;
}

// A queue as a real NIC has it, see SwitchShapers; here it slows a sender down instead of losing its frames.
constexpr const char* kHostQueue = "qdisc add dev eth0 root pfifo_fast\n";

std::string HostLinks(const Host& host, bool ipv6) {
  if (ipv6) return fmt::format("link set lo up\naddr add {}/64 dev eth0 nodad\nlink set eth0 up\n", host.address);
  return fmt::format(
      "link set lo up\n"
      "addr add {}/24 brd + dev eth0\n"
      "link set eth0 up\n"
      "route add 224.0.0.0/4 dev eth0\n",
      host.address);
}

}  // namespace

std::string PortName(const std::string& link) { return "p-" + link; }
std::string ShaperName(const std::string& link) { return "i-" + link; }

Shaping ShapingFor(uint64_t rate_bps, size_t num_hosts, uint32_t mtu) {
  const uint64_t frame_bytes = mtu + 14;
  Shaping shaping;
  // Half a millisecond at line rate bridges the timer's lateness on a busy machine.
  shaping.burst_bytes = std::clamp(rate_bps / 8 / 2000, kBurstBytesMin, kBurstBytesMax);
  shaping.queue_bytes = std::max(kQueueBytesMin, num_hosts * kPoolPackets * frame_bytes);
  return shaping;
}

Result<void> BuildNetwork(const Paths& paths, const Topology& topology) {
  std::string names = fmt::format("netns add {}\n", paths.Netns(Paths::kSwitch));
  for (const auto& host : topology.hosts) names += fmt::format("netns add {}\n", paths.Netns(host.name));
  if (auto r = Run({"ip", "-batch", "-"}, names); !r) return tl::make_unexpected(r.error());
  if (auto r = PrepareNamespace(paths, Paths::kSwitch, false); !r) return r;
  for (const auto& host : topology.hosts) {
    if (auto r = PrepareNamespace(paths, host.name, topology.ipv6); !r) return r;
  }
  const std::string sw = paths.Netns(Paths::kSwitch);
  if (auto r = Run({"ip", "-n", sw, "-batch", "-"}, SwitchLinks(paths, topology)); !r)
    return tl::make_unexpected(r.error());
  if (auto r = Run({"tc", "-n", sw, "-batch", "-"}, SwitchShapers(topology)); !r)
    return tl::make_unexpected(r.error());
  BorrowHysteresis();
  for (const auto& host : topology.hosts) {
    auto r = Run({"ip", "-n", paths.Netns(host.name), "-batch", "-"}, HostLinks(host, topology.ipv6));
    if (r) r = Run({"tc", "-n", paths.Netns(host.name), "-batch", "-"}, kHostQueue);
    if (!r) return tl::make_unexpected(r.error());
  }
  return {};
}

std::vector<std::string> MissingKernelFeatures() {
  struct Probe {
    const char* feature;
    std::vector<std::string> argv;
  };
  const std::string ns = fmt::format("ml-probe-{}", getpid());
  if (!Run({"ip", "netns", "add", ns})) return {"network namespaces (CONFIG_NET_NS)"};
  std::vector<std::string> missing;
  for (const auto& probe : std::vector<Probe>{
           {"veth (CONFIG_VETH)",
            {"ip", "-n", ns, "link", "add", "v0", "type", "veth", "peer", "name", "v1"}},
           {"bridge (CONFIG_BRIDGE)", {"ip", "-n", ns, "link", "add", "br0", "type", "bridge"}},
           {"ifb (CONFIG_IFB)", {"ip", "-n", ns, "link", "add", "i0", "type", "ifb"}},
           {"htb (CONFIG_NET_SCH_HTB)", {"tc", "-n", ns, "qdisc", "add", "dev", "lo", "root", "htb"}},
           {"clsact (CONFIG_NET_SCH_INGRESS)", {"tc", "-n", ns, "qdisc", "add", "dev", "lo", "clsact"}},
           {"u32 and mirred (CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED)",
            {"tc",      "-n",       ns,       "filter", "add",      "dev", "lo",
             "ingress", "protocol", "all",    "u32",    "match",    "u32", "0",
             "0",       "action",   "mirred", "egress", "redirect", "dev", "lo"}},
       }) {
    if (!Run(probe.argv)) missing.push_back(probe.feature);
  }
  (void)DeleteNetns({ns});
  return missing;
}

}  // namespace mlnet::lab
