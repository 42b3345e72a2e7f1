// SPDX-License-Identifier: Apache-2.0
#include "faults.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/errno_error.h"
#include "delay_line.h"
#include "fault.skel.h"
#include "netns.h"
#include "network.h"
#include "ports.h"

namespace mlnet::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDirections[] = {"tx", "rx"};
constexpr uint32_t kFaultPriority = 10;  // before the redirect to the shaper (20)

struct Pins {
  Fd links, fault_tx, fault_rx;
};

// Loads and pins the programs once per lab; afterwards they are found by their pins.
Result<void> PinPrograms(const fs::path& dir) {
  std::error_code ec;
  if (fs::exists(dir / "lab_release", ec)) return {};
  std::unique_ptr<fault, decltype(&fault::destroy)> programs(fault::open_and_load(), &fault::destroy);
  if (!programs) return tl::make_unexpected(ErrnoError("load the fault programs", errno));
  fs::create_directories(dir, ec);
  // lab_release last: it says that all are there.
  for (const auto& [fd, name] : {std::pair{bpf_map__fd(programs->maps.lab_links), "lab_links"},
                                 {bpf_program__fd(programs->progs.lab_fault_tx), "lab_fault_tx"},
                                 {bpf_program__fd(programs->progs.lab_fault_rx), "lab_fault_rx"},
                                 {bpf_program__fd(programs->progs.lab_release), "lab_release"}}) {
    if (bpf_obj_pin(fd, (dir / name).c_str()) != 0 && errno != EEXIST) {
      return tl::make_unexpected(ErrnoError("pin " + (dir / name).string(), errno));
    }
  }
  return {};
}

Result<Pins> OpenPins(const fs::path& dir) {
  Pins pins{Fd(bpf_obj_get((dir / "lab_links").c_str())), Fd(bpf_obj_get((dir / "lab_fault_tx").c_str())),
            Fd(bpf_obj_get((dir / "lab_fault_rx").c_str()))};
  if (pins.links && pins.fault_tx && pins.fault_rx) return pins;
  return tl::make_unexpected(ErrnoError("open the pins in " + dir.string(), errno));
}

// splitmix64's increment keeps the sequences of the links apart.
uint64_t LinkSeed(uint64_t seed, uint32_t key) {
  return seed * 0xd1342543de82ef95ULL + key * 0x2545f4914f6cdd1dULL;
}

// The switch marks in front of ports with a rate.
bool Marks(const Topology& topology, uint64_t rate_bps) { return topology.mark_kib != 0 && rate_bps != 0; }

void ConfigureMarks(const Topology& topology, uint64_t rate_bps, lab_link& link) {
  constexpr double kNsKib = 1024 * 8 * 1e9;
  link.ns_per_kib = Marks(topology, rate_bps) ? static_cast<uint64_t>(kNsKib / static_cast<double>(rate_bps)) : 0;
  link.mark_ns = topology.mark_kib * link.ns_per_kib;
}

Result<void> Configure(const Pins& pins, uint32_t key, const Topology& topology, const Faults& faults, uint64_t rate_bps, bool restart) {
  lab_link link = {};
  if (bpf_map_lookup_elem(pins.links.get(), &key, &link) != 0)
    return tl::make_unexpected(ErrnoError("read the fault map", errno));
  if (restart) link = {};
  link.loss_ppm = faults.loss_ppm;
  link.duplicate_ppm = faults.duplicate_ppm;
  link.reorder_ppm = faults.reorder_ppm;
  link.corrupt_ppm = faults.corrupt_ppm;
  link.hold_all = faults.delay_us != 0;
  link.hold_us = faults.delay_us != 0 ? faults.delay_us : kReorderHoldUs;
  link.seed = LinkSeed(topology.seed, key);
  ConfigureMarks(topology, rate_bps, link);
  if (bpf_map_update_elem(pins.links.get(), &key, &link, 0) == 0) return {};
  return tl::make_unexpected(ErrnoError("write the fault map", errno));
}

// In the switch namespace. A direction without faults has no program at all.
Result<void> Attach(int ifindex, int direction, int program) {
  LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = ifindex,
              .attach_point = direction == LAB_TX ? BPF_TC_INGRESS : BPF_TC_EGRESS);
  LIBBPF_OPTS(bpf_tc_opts, options, .handle = 1, .priority = kFaultPriority);
  int err = 0;
  if (program >= 0) {
    options.prog_fd = program;
    options.flags = BPF_TC_F_REPLACE;
    err = bpf_tc_attach(&hook, &options);
  } else {
    err = bpf_tc_detach(&hook, &options);
    if (err == -ENOENT || err == -EINVAL) err = 0;  // was not there
  }
  if (err == 0) return {};
  return tl::make_unexpected(ErrnoError(fmt::format("fault program on port {}", ifindex), -err));
}

Result<void> AttachAll(const Paths& paths, const Topology& topology, const Pins& pins) {
  return InNetns(paths.NetnsFile(Paths::kSwitch), [&]() -> Result<void> {
    const auto links = LinksOf(topology);
    for (size_t i = 0; i < links.size(); ++i) {
      const int ifindex = LAB_PORT_IFINDEX + static_cast<int>(i);
      const int tx = links[i].tx.Any() || Marks(topology, links[i].up_bps) ? pins.fault_tx.get() : -1;
      const int rx = links[i].rx.Any() || Marks(topology, links[i].down_bps) ? pins.fault_rx.get() : -1;
      if (auto r = Attach(ifindex, LAB_TX, tx); !r) return r;
      if (auto r = Attach(ifindex, LAB_RX, rx); !r) return r;
    }
    return {};
  });
}

bool Any(const Topology& topology, bool (Faults::*property)() const) {
  const auto links = LinksOf(topology);
  return std::any_of(links.begin(), links.end(),
                     [&](const Link& link) { return (link.tx.*property)() || (link.rx.*property)(); });
}

}  // namespace

Result<void> ApplyFaults(const Paths& paths, const Topology& topology,
                         const std::vector<std::string>* restart) {
  SilenceLibbpf();
  std::error_code ec;
  if (!fs::exists(paths.FaultPins(), ec) && !Any(topology, &Faults::Any) && topology.mark_kib == 0) return {};
  if (auto r = PinPrograms(paths.FaultPins()); !r) return r;
  const auto pins = OpenPins(paths.FaultPins());
  if (!pins) return tl::make_unexpected(pins.error());
  // The delay line first: a frame redirected to a TAP that is not there is lost.
  if (Any(topology, &Faults::NeedsHold)) {
    if (auto r = StartDelayLine(paths); !r) return r;
  }
  const auto links = LinksOf(topology);
  for (size_t i = 0; i < links.size(); ++i) {
    const Link& link = links[i];
    const bool anew =
        restart == nullptr || std::find(restart->begin(), restart->end(), link.name) != restart->end();
    for (const int direction : {LAB_TX, LAB_RX}) {
      const uint32_t key = static_cast<uint32_t>(2 * i) + static_cast<uint32_t>(direction);
      const Faults& faults = direction == LAB_TX ? link.tx : link.rx;
      if (auto r = Configure(*pins, key, topology, faults, direction == LAB_TX ? link.up_bps : link.down_bps, anew); !r) return r;
    }
  }
  if (auto r = AttachAll(paths, topology, *pins); !r) return r;
  if (!Any(topology, &Faults::NeedsHold)) StopDelayLine(paths);
  return {};
}

Result<lab_link> ReadLink(const Paths& paths, size_t link_index, int direction) {
  lab_link link = {};
  const Fd links(bpf_obj_get((paths.FaultPins() / "lab_links").c_str()));
  if (!links) return link;
  const uint32_t key = static_cast<uint32_t>(2 * link_index) + static_cast<uint32_t>(direction);
  if (bpf_map_lookup_elem(links.get(), &key, &link) == 0) return link;
  return tl::make_unexpected(
      ErrnoError(fmt::format("read faults of {} {}", link_index, kDirections[direction]), errno));
}

}  // namespace mlnet::lab
