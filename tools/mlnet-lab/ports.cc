// SPDX-License-Identifier: Apache-2.0
#include "ports.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <fmt/format.h>

#include <memory>

#include "base/errno_error.h"
#include "fault.skel.h"
#include "netns.h"
#include "network.h"

namespace mlnet::lab {

Result<void> SetPorts(const Paths& paths, const Topology& topology, XdpMode mode) {
  libbpf_set_print([](libbpf_print_level, const char*, va_list) { return 0; });
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

}  // namespace mlnet::lab
