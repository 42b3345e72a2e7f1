// SPDX-License-Identifier: Apache-2.0
#include "datapath/qdisc.h"

#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/errno_error.h"
#include "datapath/netlink.h"

namespace mlnet::datapath {
namespace {

constexpr uint32_t kTopClass = 1, kFirstLeaf = MLNET_QOS_FIRST_LEAF;  // minor numbers of htb's classes
constexpr uint32_t kHtbPriosMax = 8;
constexpr uint64_t kBurstNs = 1'000'000;
constexpr uint64_t kBurstBytesMin = 32 * 1024;
constexpr uint64_t kStrictShare = 1000;  // of the rate that a strict band has for itself: 1/1000
constexpr uint32_t kQuantumMin = 1514, kQuantumMax = 60'000;

class TcRequest : public NetlinkRequest {
 public:
  TcRequest(uint16_t type, uint16_t flags, int ifindex, uint32_t handle, uint32_t parent) : NetlinkRequest(type, flags) {
    auto& body = Put<tcmsg>();
    body.tcm_family = AF_UNSPEC;
    body.tcm_ifindex = ifindex;
    body.tcm_handle = handle;
    body.tcm_parent = parent;
  }
};

Result<bool> HasAny(uint16_t type, int ifindex, uint32_t parent) {
  TcRequest request(type, NLM_F_DUMP, ifindex, 0, parent);
  bool has_any = false;
  auto asked = request.Ask("read the interface's classes and filters", [&](const nlmsghdr*) { has_any = true; });
  if (!asked) return tl::make_unexpected(asked.error());
  return has_any;
}

Result<void> PutQdisc(const std::string& what, int ifindex, uint32_t handle, const std::string& kind, const std::vector<uint8_t>& options) {
  TcRequest request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, ifindex, handle, TC_H_ROOT);
  mnl_attr_put_strz(request.header(), TCA_KIND, kind.c_str());
  if (!options.empty()) mnl_attr_put(request.header(), TCA_OPTIONS, options.size(), options.data());
  return request.Send(what);
}

template <typename Options>
std::vector<uint8_t> BytesOf(const Options& options) {
  std::vector<uint8_t> bytes(sizeof(options));
  std::memcpy(bytes.data(), &options, sizeof(options));
  return bytes;
}

Result<void> SetPrio(int ifindex, const BandSpec& spec) {
  tc_prio_qopt options{};
  options.bands = static_cast<int>(spec.num_bands);
  std::copy(spec.band_of_priority.begin(), spec.band_of_priority.end(), options.priomap);
  return PutQdisc("set prio", ifindex, kQosHandle, "prio", BytesOf(options));
}

// Bands are traffic classes of the NIC here, which count the other way: the highest is the most urgent one.
Result<void> SetMqprio(int ifindex, const BandSpec& spec) {
  tc_mqprio_qopt options{};
  options.num_tc = static_cast<uint8_t>(std::min(spec.num_bands, spec.num_queues));
  options.hw = 1;
  if (options.num_tc < 2) return Err(ErrorCode::kUnsupported, "set mqprio: the NIC has one queue");
  for (size_t p = 0; p < kPriorities; ++p) {
    const uint32_t urgency = spec.num_bands - 1 - spec.band_of_priority[p];
    options.prio_tc_map[p] = static_cast<uint8_t>(urgency * options.num_tc / spec.num_bands);
  }
  for (uint32_t tc = 0; tc < options.num_tc; ++tc) {
    const uint32_t from = tc * spec.num_queues / options.num_tc, to = (tc + 1) * spec.num_queues / options.num_tc;
    options.offset[tc] = static_cast<uint16_t>(from);
    options.count[tc] = static_cast<uint16_t>(to - from);
  }
  return PutQdisc("set mqprio", ifindex, kQosHandle, "mqprio", BytesOf(options));
}

Result<void> SetEts(int ifindex, const BandSpec& spec) {
  TcRequest request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, ifindex, kQosHandle, TC_H_ROOT);
  nlmsghdr* header = request.header();
  mnl_attr_put_strz(header, TCA_KIND, "ets");
  nlattr* options = mnl_attr_nest_start(header, TCA_OPTIONS);
  mnl_attr_put_u8(header, TCA_ETS_NBANDS, static_cast<uint8_t>(spec.num_bands));
  mnl_attr_put_u8(header, TCA_ETS_NSTRICT, static_cast<uint8_t>(spec.weights.empty() ? spec.num_bands : 0));
  if (!spec.weights.empty()) {
    nlattr* quanta = mnl_attr_nest_start(header, TCA_ETS_QUANTA);
    for (const uint32_t weight : spec.weights) mnl_attr_put_u32(header, TCA_ETS_QUANTA_BAND, weight * kQuantumMin);
    mnl_attr_nest_end(header, quanta);
  }
  nlattr* map = mnl_attr_nest_start(header, TCA_ETS_PRIOMAP);
  for (const uint8_t band : spec.band_of_priority) mnl_attr_put_u8(header, TCA_ETS_PRIOMAP_BAND, band);
  mnl_attr_nest_end(header, map);
  mnl_attr_nest_end(header, options);
  return request.Send("set ets");
}

struct HtbClass {
  uint32_t parent = 0, minor = 0;
  uint64_t rate_bps = 0, ceil_bps = 0;
  uint32_t prio = 0, quantum = 0;
};

// The kernel's clock for bursts ticks each 64 ns.
uint32_t BurstTicks(uint64_t rate_bps) {
  const uint64_t bytes = std::max(kBurstBytesMin, rate_bps / 8 * kBurstNs / 1'000'000'000);
  const double ns = static_cast<double>(bytes) * 8e9 / static_cast<double>(rate_bps);
  return static_cast<uint32_t>(std::min(ns / 64, 4e9));
}

void SetRate(tc_ratespec& spec, uint64_t rate_bps) {
  spec.rate = static_cast<uint32_t>(std::min<uint64_t>(rate_bps / 8, ~uint32_t{0}));
  spec.linklayer = TC_LINKLAYER_ETHERNET;
}

Result<void> AddHtbClass(int ifindex, const HtbClass& c) {
  TcRequest request(RTM_NEWTCLASS, NLM_F_CREATE | NLM_F_EXCL, ifindex, kQosHandle | c.minor, kQosHandle | c.parent);
  nlmsghdr* header = request.header();
  mnl_attr_put_strz(header, TCA_KIND, "htb");
  nlattr* options = mnl_attr_nest_start(header, TCA_OPTIONS);
  tc_htb_opt parms{};
  SetRate(parms.rate, c.rate_bps);
  SetRate(parms.ceil, c.ceil_bps);
  parms.buffer = BurstTicks(c.rate_bps);
  parms.cbuffer = BurstTicks(c.ceil_bps);
  parms.quantum = c.quantum;
  parms.prio = c.prio;
  if (c.rate_bps / 8 > ~uint32_t{0}) mnl_attr_put_u64(header, TCA_HTB_RATE64, c.rate_bps / 8);
  if (c.ceil_bps / 8 > ~uint32_t{0}) mnl_attr_put_u64(header, TCA_HTB_CEIL64, c.ceil_bps / 8);
  mnl_attr_put(header, TCA_HTB_PARMS, sizeof(parms), &parms);
  mnl_attr_nest_end(header, options);
  return request.Send("add a class to htb");
}

// htb has eight levels: the last two bands share one, and the lower of them gets little of it.
HtbClass Leaf(const BandSpec& spec, uint32_t band) {
  HtbClass leaf{kTopClass, kFirstLeaf + band, std::max<uint64_t>(spec.rate_bps / kStrictShare, 8000), spec.rate_bps,
                std::min(band, kHtbPriosMax - 1), band < kHtbPriosMax ? kQuantumMax : kQuantumMin};
  if (spec.weights.empty()) return leaf;
  uint64_t sum = 0;
  for (const uint32_t weight : spec.weights) sum += weight;
  const uint32_t largest = *std::max_element(spec.weights.begin(), spec.weights.end());
  leaf.rate_bps = std::max<uint64_t>(spec.rate_bps * spec.weights[band] / sum, 8000);
  leaf.prio = 0;
  leaf.quantum = std::max(kQuantumMin, static_cast<uint32_t>(uint64_t{kQuantumMax} * spec.weights[band] / largest));
  return leaf;
}

Result<void> AddClassifier(int ifindex, int program) {
  TcRequest request(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, ifindex, 1, kQosHandle);
  nlmsghdr* header = request.header();
  auto* body = static_cast<tcmsg*>(mnl_nlmsg_get_payload(header));
  body->tcm_info = TC_H_MAKE(1u << 16, __builtin_bswap16(ETH_P_ALL));
  mnl_attr_put_strz(header, TCA_KIND, "bpf");
  nlattr* options = mnl_attr_nest_start(header, TCA_OPTIONS);
  mnl_attr_put_u32(header, TCA_BPF_FD, static_cast<uint32_t>(program));
  mnl_attr_put_strz(header, TCA_BPF_NAME, "ml_classify");
  mnl_attr_nest_end(header, options);
  return request.Send("add the classifier to htb");
}

Result<void> SetHtb(int ifindex, const BandSpec& spec, int classifier) {
  TcRequest request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, ifindex, kQosHandle, TC_H_ROOT);
  nlmsghdr* header = request.header();
  mnl_attr_put_strz(header, TCA_KIND, "htb");
  nlattr* options = mnl_attr_nest_start(header, TCA_OPTIONS);
  tc_htb_glob glob{};
  glob.version = 3;
  glob.rate2quantum = 10;
  glob.defcls = kFirstLeaf + spec.other_band;
  mnl_attr_put(header, TCA_HTB_INIT, sizeof(glob), &glob);
  mnl_attr_nest_end(header, options);
  if (auto ok = request.Send("set htb"); !ok) return ok;
  if (auto ok = AddHtbClass(ifindex, {0, kTopClass, spec.rate_bps, spec.rate_bps, 0, kQuantumMax}); !ok) return ok;
  for (uint32_t band = 0; band < spec.num_bands; ++band) {
    if (auto ok = AddHtbClass(ifindex, Leaf(spec, band)); !ok) return ok;
  }
  return AddClassifier(ifindex, classifier);
}

Result<void> Set(int ifindex, const BandSpec& spec, int classifier) {
  if (spec.kind == "mqprio") return SetMqprio(ifindex, spec);
  if (spec.kind == "prio") return SetPrio(ifindex, spec);
  if (spec.kind == "ets") return SetEts(ifindex, spec);
  return SetHtb(ifindex, spec, classifier);
}

}  // namespace

Result<RootQdisc> ReadRootQdisc(int ifindex) {
  RootQdisc root;
  bool has_children = false;
  TcRequest request(RTM_GETQDISC, NLM_F_DUMP, ifindex, 0, 0);
  auto asked = request.Ask("read the interface's qdiscs", [&](const nlmsghdr* answer) {
    const auto* body = static_cast<const tcmsg*>(mnl_nlmsg_get_payload(answer));
    if (body->tcm_ifindex != ifindex) return;
    // The kernel puts its own below a root of its own; anybody else's has a handle.
    if (body->tcm_parent != TC_H_ROOT) has_children |= body->tcm_parent < TC_H_CLSACT && body->tcm_handle != 0;
    if (body->tcm_parent != TC_H_ROOT) return;
    root.handle = body->tcm_handle;
    ForEachAttribute(answer, sizeof(tcmsg), [&](const nlattr* attribute) {
      const auto* bytes = static_cast<const uint8_t*>(mnl_attr_get_payload(attribute));
      if (mnl_attr_get_type(attribute) == TCA_KIND) root.kind = mnl_attr_get_str(attribute);
      if (mnl_attr_get_type(attribute) == TCA_OPTIONS) root.options.assign(bytes, bytes + mnl_attr_get_payload_len(attribute));
    });
  });
  if (!asked) return tl::make_unexpected(asked.error());
  if (root.kind.empty()) return Err(ErrorCode::kUnsupported, "the interface has no root qdisc; is it up?");
  if (root.handle == 0) {
    root.options.clear();
    root.has_parts = has_children;
    return root;
  }
  const auto classes = HasAny(RTM_GETTCLASS, ifindex, 0), filters = HasAny(RTM_GETTFILTER, ifindex, root.handle);
  if (!classes) return tl::make_unexpected(classes.error());
  if (!filters) return tl::make_unexpected(filters.error());
  root.has_parts = has_children || *classes || *filters;
  return root;
}

Result<void> RestoreRootQdisc(int ifindex, const RootQdisc& before) {
  const auto now = ReadRootQdisc(ifindex);
  if (!now) return tl::make_unexpected(now.error());
  if (*now == before) return {};
  if (now->handle == kQosHandle) {
    TcRequest request(RTM_DELQDISC, 0, ifindex, kQosHandle, TC_H_ROOT);
    if (auto ok = request.Send("remove the qdisc"); !ok) return ok;
  } else {
    return Err(ErrorCode::kConflict, "somebody has put '" + now->kind + "' there since; it is left as it is");
  }
  if (before.handle == 0) return {};  // the kernel has put its own there
  return PutQdisc("restore " + before.kind, ifindex, before.handle, before.kind, before.options);
}

Result<void> SetBands(int ifindex, const BandSpec& spec, int classifier) {
  auto ok = Set(ifindex, spec, classifier);
  if (ok || ok.error().code == ErrorCode::kPermission) return ok;
  ok.error().code = ErrorCode::kUnsupported;
  if (ok.error().hint.empty()) ok.error().hint = "this kernel or this NIC has no " + spec.kind + ", or not so";
  return ok;
}

uint32_t NumTxQueues(int ifindex) {
  NetlinkRequest request(RTM_GETLINK, 0);
  request.Put<ifinfomsg>().ifi_index = ifindex;
  uint32_t queues = 0;
  auto asked = request.Ask("read the interface", [&](const nlmsghdr* answer) {
    ForEachAttribute(answer, sizeof(ifinfomsg), [&](const nlattr* attribute) {
      if (mnl_attr_get_type(attribute) == IFLA_NUM_TX_QUEUES) queues = mnl_attr_get_u32(attribute);
    });
  });
  return asked ? queues : 0;
}

}  // namespace mlnet::datapath
