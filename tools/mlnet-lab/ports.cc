// SPDX-License-Identifier: Apache-2.0
#include "ports.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/if_link.h>

#include <algorithm>
#include <memory>

#include "base/errno_error.h"
#include "fault.skel.h"
#include "netns.h"
#include "network.h"
#include "process.h"

namespace mlnet::lab {

void SilenceLibbpf() {
  libbpf_set_print([](libbpf_print_level, const char*, va_list) { return 0; });
}

namespace {

bool AnyFault(const Topology& topology, bool (*test)(const Faults&)) {
  const auto links = LinksOf(topology);
  return std::any_of(links.begin(), links.end(), [test](const Link& link) { return test(link.tx) || test(link.rx); });
}

Result<void> Ethtool(std::vector<std::string> settings, const std::string& iface) {
  settings.insert(settings.begin(), {"ethtool", "-K", iface});
  auto done = Run(settings);
  if (!done) return tl::make_unexpected(done.error());
  return {};
}

int PortIndex(size_t host) { return LAB_PORT_IFINDEX + static_cast<int>(host); }

// The end of the veth pair that belongs to the switch. It needs an XDP program of its own, else XDP_TX of the
// host is lost without a trace; GRO is enough for a redirect only.
Result<void> SetPort(const Host& host, int ifindex, int program) {
  const int err = bpf_xdp_attach(ifindex, program, XDP_FLAGS_DRV_MODE, nullptr);
  const std::string hint = err == -ERANGE ? "a veth takes native XDP with an MTU of some 3500 at most: --mtu 3498" : "";
  if (err != 0) return tl::make_unexpected(ErrnoError("attach XDP to port " + PortName(host.name), -err, hint));
  return Ethtool({"gro", "off"}, PortName(host.name));
}

// In the switch's namespace, which the indexes belong to.
Result<void> FillForwarding(const fault& programs, size_t num_hosts) {
  for (uint32_t i = 0; i < num_hosts; ++i) {
    const int port = PortIndex(i);
    if (bpf_map_update_elem(bpf_map__fd(programs.maps.lab_ports), &i, &port, 0) != 0)
      return tl::make_unexpected(ErrnoError("write the lab's forwarding table", errno));
  }
  return {};
}

// What runs on the port of a host, or -1.
int ProgramFor(const Topology& topology, const Host& host, const fault* programs) {
  if (programs == nullptr) return -1;
  const bool keeps_offload = topology.offload && !AnyFault(topology, [](const Faults& f) { return f.Any(); });
  if (keeps_offload && !host.is_aggregator) return -1;
  return bpf_program__fd(IsForwardedInXdp(topology) ? programs->progs.lab_forward : programs->progs.lab_pass);
}

Result<void> SetHost(const Paths& paths, const Topology& topology, const Host& host) {
  const char* segmentation = AnyFault(topology, [](const Faults& f) { return f.Any(); }) ? "off" : "on";
  // Between namespaces checksums are not computed but promised; a receiver would believe the promise for a
  // damaged frame.
  const char* checksums =
      AnyFault(topology, [](const Faults& f) { return f.corrupt_ppm != 0; }) ? "off" : "on";
  return InNetns(paths.NetnsFile(host.name), [&] {
    return Ethtool({"tx", checksums, "tso", segmentation, "tx-udp-segmentation", segmentation}, "eth0");
  });
}

}  // namespace

Result<void> SetPorts(const Paths& paths, const Topology& topology, XdpMode mode) {
  SilenceLibbpf();
  std::unique_ptr<fault, decltype(&fault::destroy)> programs(nullptr, &fault::destroy);
  if (mode == XdpMode::kOn) {
    programs.reset(fault::open_and_load());
    if (!programs) return tl::make_unexpected(ErrnoError("load the lab's XDP program", errno));
  }
  auto result = InNetns(paths.NetnsFile(Paths::kSwitch), [&]() -> Result<void> {
    if (programs && IsForwardedInXdp(topology)) {
      if (auto r = FillForwarding(*programs, topology.hosts.size()); !r) return r;
    }
    for (size_t i = 0; i < topology.hosts.size(); ++i) {
      if (auto r = SetPort(topology.hosts[i], PortIndex(i), ProgramFor(topology, topology.hosts[i], programs.get())); !r) return r;
    }
    return {};
  });
  for (const Host& host : topology.hosts) {
    if (result) result = SetHost(paths, topology, host);
  }
  return result;
}

}  // namespace mlnet::lab
