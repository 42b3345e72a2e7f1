// SPDX-License-Identifier: Apache-2.0
#include "control/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/ip_address.h"
#include "control/config.h"
#include "control/job.h"
#include "control/ring.h"
#include "control/tree.h"
#include "mlnet/job.h"
#include "mlnet/limits.h"
#include "mlnet/wire.h"
#include "rpc/message.h"

namespace mlnet::control {
namespace {

constexpr int kMtuMax = 65536;              // of the loopback interface, the largest there is
constexpr uint64_t kTimeMax = 1ULL << 53;   // of milliseconds, which are computed with as doubles
constexpr uint32_t kLog2SlotsMax = 16;
constexpr size_t kKeyDigits = 32;

Result<void> Wrong(std::string what) { return Err(ErrorCode::kProtocol, std::move(what)); }

bool IsNegative(const Json& number) { return number.is_number_integer() && !number.is_number_unsigned() && number.get<int64_t>() < 0; }

// Whether `whole` says all that `part` does: what was read differs from what was written where a number did not fit.
bool Says(const Json& whole, const Json& part) {
  if (part.is_object() && whole.is_object()) {
    return std::all_of(part.items().begin(), part.items().end(), [&](const auto& item) {
      const auto it = whole.find(item.key());
      return it == whole.end() || Says(*it, item.value());
    });
  }
  if (!part.is_array() || !whole.is_array()) return whole == part && IsNegative(whole) == IsNegative(part);  // -1 == 2^64 - 1 to it
  return std::equal(part.begin(), part.end(), whole.begin(), whole.end(), [](const Json& p, const Json& w) { return Says(w, p); });
}

// Whole numbers are expected everywhere but there, and what is none cannot even be converted (a double beyond an integer's range).
void TakeOutFractions(Json& json, const std::string& key) {
  if (json.is_object()) {
    for (const auto& item : json.items()) TakeOutFractions(item.value(), item.key());
  } else if (json.is_array()) {
    for (Json& element : json) TakeOutFractions(element, key);
  } else if (json.is_number_float() && key != "oversubscription") {
    json = nullptr;
  }
}

template <typename Record>
Result<Record> Read(std::string_view text) {
  auto json = rpc::ParseJson(text);
  if (!json) return tl::make_unexpected(json.error());
  TakeOutFractions(*json, "");
  try {
    Record record = json->get<Record>();
    if (!Says(Json(record), *json)) return Err(ErrorCode::kProtocol, "a number that does not fit");
    if (auto ok = CheckRecord(record); !ok) return tl::make_unexpected(ok.error());
    return record;
  } catch (const Json::exception& e) {
    return Err(ErrorCode::kProtocol, e.what());
  }
}

bool IsAddress(const std::string& text) { return IpAddress::Parse(text).has_value(); }
bool IsAddressOrNone(const std::string& text) { return text.empty() || IsAddress(text); }

bool IsOfFamily(const std::string& text, bool is_ipv6) {
  const auto address = IpAddress::Parse(text);
  return text.empty() || (address && address->IsIpv6() == is_ipv6);
}

Result<void> CheckIface(const IfaceRecord& iface) {
  if (!IsOfFamily(iface.address, false) || !IsOfFamily(iface.address6, true)) return Wrong("an address of interface '" + iface.name + "' is none");
  if (iface.prefix < 0 || iface.prefix > 32 || iface.prefix6 < 0 || iface.prefix6 > 128) return Wrong("a prefix of interface '" + iface.name + "' is none");
  if (iface.mtu < 0 || iface.mtu > kMtuMax) return Wrong("the MTU of interface '" + iface.name + "' is out of range");
  return {};
}

Result<void> CheckPort(const Plan& plan, const PlanPort& port, bool is_ipv6) {
  // Of a job that began in a ring the root is nobody.
  const bool is_nobody = plan.shape == "ring" && port.host.empty();
  if (!is_nobody && !IsName(port.host)) return Wrong("a port of the plan has no host");
  if (!IsAddress(port.address) || !IsOfFamily(port.address, is_ipv6)) return Wrong("a port of the plan has no address of the plan's family");
  if (!IsAddressOrNone(port.local_address)) return Wrong("a local address of the plan is none");
  return {};
}

// Parents before children, so that there is no loop; each host once, and all hosts of ranks.
Result<void> CheckNodes(const Plan& plan, const PlanTree& tree, const std::set<std::string>& workers) {
  std::set<std::string> hosts;
  for (size_t n = 0; n < tree.nodes.size(); ++n) {
    const PlanNode& node = tree.nodes[n];
    if (node.port >= plan.ports.size()) return Wrong("a node of the plan has no port");
    const bool has_parent = n == 0 ? node.parent == -1 : node.parent >= 0 && static_cast<size_t>(node.parent) < n;
    if (!has_parent) return Wrong("a node of the plan is below none that comes before it");
    if (!hosts.insert(plan.ports[node.port].host).second) return Wrong("a host is in a tree of the plan twice");
  }
  if (tree.weight == 0) return Wrong("a tree of the plan has no share");
  if (hosts.empty() || !std::includes(hosts.begin(), hosts.end(), workers.begin(), workers.end())) return Wrong("a tree of the plan lacks a host of ranks");
  return {};
}

// REQUIRES: its nodes are as CheckNodes wants them.
Result<void> CheckChildren(const Plan& plan, size_t tree) {
  for (size_t n = 0; n < plan.trees[tree].nodes.size(); ++n) {
    if (!IsSumming(plan, tree, n)) continue;
    const auto children = ChildrenOf(plan, tree, n);
    if (children.size() > MLNET_CHILDREN_MAX) return Wrong("a node of the plan has too many children");
    const bool is_idle = std::any_of(children.begin(), children.end(), [](const TreeChild& c) { return c.ranks.empty(); });
    if (is_idle || (children.empty() && n > 0)) return Wrong("a node of the plan has no ranks below");
  }
  return {};
}

Result<void> CheckPlan(const Plan& plan) {
  if (plan.classes < 1 || plan.classes > MLNET_CLASSES_MAX || plan.log2_slots > kLog2SlotsMax) return Wrong("the plan's pools are out of range");
  if (plan.blocks < 1 || plan.blocks > MLNET_BLOCKS_MAX) return Wrong("the plan's blocks are out of range");
  if (plan.trees.empty() || plan.trees.size() > MLNET_TREES_MAX || plan.ports.empty()) return Wrong("the plan has no trees, or too many");
  if (plan.host_of_rank.empty() || plan.host_of_rank.size() > static_cast<size_t>(kRanksMax)) return Wrong("the plan has no ranks, or too many");
  const bool is_ipv6 = IpAddress::Parse(plan.ports.front().address).value_or(IpAddress()).IsIpv6();
  for (const PlanPort& port : plan.ports) {
    if (auto ok = CheckPort(plan, port, is_ipv6); !ok) return ok;
  }
  if (!IsOfFamily(plan.group, is_ipv6)) return Wrong("the plan's group is no address of its family");
  const std::set<std::string> workers(plan.host_of_rank.begin(), plan.host_of_rank.end());
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    if (auto ok = CheckNodes(plan, plan.trees[t], workers); !ok) return ok;
    if (auto ok = CheckChildren(plan, t); !ok) return ok;
  }
  if (plan.server_host.empty()) return {};
  return plan.trees.size() == 1 && RootOf(plan, 0).host == plan.server_host ? Result<void>{} : Wrong("the server is not where the plan's root is");
}

Result<void> CheckMembers(const JobView& view) {
  std::set<int> ranks;
  for (const MemberRecord& member : view.members) {
    if (member.rank < kServerRank || member.rank >= kRanksMax) return Wrong("a rank is out of range");
    if (!ranks.insert(member.rank).second) return Wrong("a rank is there twice");
    if (!IsName(member.host)) return Wrong("a rank is on no host");
    if (member.former_rank < -1 || member.former_rank >= kRanksMax) return Wrong("a rank of before is out of range");
  }
  if (!IsActive(view.job) && !IsInRing(view.job)) return {};
  for (int rank = 0; rank < view.job.world_size; ++rank) {
    if (!ranks.contains(rank)) return Wrong("a job that runs lacks a rank");
  }
  return view.job.plan.host_of_rank.size() == static_cast<size_t>(view.job.world_size) ? Result<void>{} : Wrong("the plan has other ranks than the job");
}

bool IsKey(const std::string& key) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return key.empty() || (key.size() == kKeyDigits && std::all_of(key.begin(), key.end(), is_digit));
}

Result<void> CheckJob(const JobRecord& job) {
  constexpr const char* kStates[] = {kJoining, kPreparing, kReady, kFailed, kClosed};
  if (!IsName(job.name)) return Wrong("the job has no name");
  if (std::find(std::begin(kStates), std::end(kStates), job.state) == std::end(kStates)) return Wrong("state '" + job.state + "' is none");
  if (job.world_size < 0 || job.world_size > kRanksMax) return Wrong("world_size is out of range");
  if (!IsKey(job.key)) return Wrong("the job's key is none");
  const auto& lost = job.shrunk.lost;
  if (job.shrunk.world_size_full < 0 || job.shrunk.world_size_full > kRanksMax ||
      std::any_of(lost.begin(), lost.end(), [](int rank) { return rank < kServerRank || rank >= kRanksMax; })) {
    return Wrong("the job's ranks of before are out of range");
  }
  for (const uint64_t ms : {job.progress.since_ms, job.progress.waited_ms, job.progress.served_ms}) {
    if (ms > kTimeMax) return Wrong("a time of the job's progress is out of range");
  }
  return CheckSpec(job.spec);
}

// Rows of counters as ToJson of a host makes them.
bool IsTreeRow(const Json& row) {
  if (!row.is_object()) return false;
  const auto lag = row.find("lag");
  if (lag == row.end()) return true;
  return lag->is_array() && std::all_of(lag->begin(), lag->end(), [](const Json& link) {
    return link.is_array() && link.size() == 2 && link[0].is_number_unsigned() && link[1].is_number();
  });
}

bool AreCounters(const Json& body) {
  if (!body.is_object()) return false;
  const auto verdicts = body.find("verdicts"), trees = body.find("trees");
  const auto is_object = [](const Json& value) { return value.is_object(); };
  if (verdicts != body.end() && !(verdicts->is_object() && std::all_of(verdicts->begin(), verdicts->end(), is_object))) return false;
  return trees == body.end() || (trees->is_array() && std::all_of(trees->begin(), trees->end(), IsTreeRow));
}

}  // namespace

Result<void> CheckRecord(const HostRecord& host) {
  if (!IsName(host.host)) return Wrong("the host has no name");
  if (!IsOfFamily(host.local_address, false) || !IsOfFamily(host.local_address6, true)) return Wrong("a local address is none");
  if (!std::isfinite(host.oversubscription) || host.oversubscription < 0) return Wrong("oversubscription is out of range");
  for (const IfaceRecord& iface : host.ifaces) {
    if (auto ok = CheckIface(iface); !ok) return ok;
  }
  return {};
}

Result<void> CheckRecord(const JobView& view) {
  const bool is_planned = !view.job.plan.trees.empty() || !view.job.plan.ports.empty() || !view.job.plan.host_of_rank.empty();
  if (auto ok = CheckJob(view.job); !ok) return ok;
  if ((IsActive(view.job) || IsInRing(view.job)) && !is_planned) return Wrong("a job that runs has no plan");
  if (view.job.state == kJoining && IsInRing(view.job)) return Wrong("a job whose ranks still join is in a ring");
  if (IsActive(view.job) && view.job.spec.mac && view.job.key.empty()) return Wrong("a job with tags has no key");
  if (is_planned) {
    if (auto ok = CheckPlan(view.job.plan); !ok) return ok;
  }
  if (auto ok = CheckMembers(view); !ok) return ok;
  const auto is_host = [](const JobHostRecord& host) { return IsName(host.host); };
  return std::all_of(view.hosts.begin(), view.hosts.end(), is_host) ? Result<void>{} : Wrong("a host of the job has no name");
}

Result<JobView> ReadJobView(std::string_view text) { return Read<JobView>(text); }
Result<HostRecord> ReadHostRecord(std::string_view text) { return Read<HostRecord>(text); }

Result<Json> ReadCounters(std::string_view text) {
  auto body = rpc::ParseJson(text);
  if (body && !AreCounters(*body)) return Err(ErrorCode::kProtocol, "not counters");
  return body;
}

}  // namespace mlnet::control
