// SPDX-License-Identifier: Apache-2.0
#include "ports.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <fmt/format.h>

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

Result<void> SetPorts(const Paths& paths, const Topology& topology, XdpMode mode) {
  SilenceLibbpf();
  std::unique_ptr<fault, decltype(&fault::destroy)> programs(nullptr, &fault::destroy);
  if (mode == XdpMode::kOn) {
    programs.reset(fault::open_and_load());
    if (!programs) return tl::make_unexpected(ErrnoError("load the lab's XDP program", errno));
  }
  return InNetns(paths.NetnsFile(Paths::kSwitch), [&]() -> Result<void> {
    for (size_t i = 0; i < topology.hosts.size(); ++i) {
      const int ifindex = kPortIndexBase + static_cast<int>(i);
      const int program = programs ? bpf_program__fd(programs->progs.lab_pass) : -1;
      const int err = bpf_xdp_attach(ifindex, program, XDP_FLAGS_DRV_MODE, nullptr);
      if (err != 0) return tl::make_unexpected(ErrnoError(fmt::format("attach XDP to port {}", PortName(topology.hosts[i].name)), -err));
    }
    return {};
  });
}

Result<void> SetOffloads(const Paths& paths, const Topology& topology) {
  const auto any = [&topology](auto&& test) {
    return std::any_of(topology.hosts.begin(), topology.hosts.end(), [&](const Host& h) { return test(h.tx) || test(h.rx); });
  };
  const char* segmentation = any([](const Faults& f) { return f.Any(); }) ? "off" : "on";
  // Between namespaces checksums are not computed but promised; a receiver would believe the promise for a damaged frame.
  const char* checksums = any([](const Faults& f) { return f.corrupt_ppm != 0; }) ? "off" : "on";
  for (const Host& host : topology.hosts) {
    auto r = InNetns(paths.NetnsFile(host.name), [&]() -> Result<void> {
      auto done = Run({"ethtool", "-K", "eth0", "tx", checksums, "tso", segmentation, "tx-udp-segmentation", segmentation});
      if (!done) return tl::make_unexpected(done.error());
      return {};
    });
    if (!r) return r;
  }
  return InNetns(paths.NetnsFile(Paths::kSwitch), [&]() -> Result<void> {
    for (const Host& host : topology.hosts) {
      auto done = Run({"ethtool", "-K", PortName(host.name), "gro", "off"});
      if (!done) return tl::make_unexpected(done.error());
    }
    return {};
  });
}

}  // namespace mlnet::lab
