// SPDX-License-Identifier: Apache-2.0
#include "daemon/qos.h"

#include <fmt/format.h>
#include <net/if.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace mlnet::daemon {

using control::Json;
using datapath::BandSpec;
using datapath::RootQdisc;

namespace {

constexpr const char* kSection = "qos";
constexpr const char* kXdpNote =
    "frames that XDP sends (results, partial sums) pass no queue of this host: their DSCP acts from the next hop on";
constexpr uint32_t kOtherBand = MLNET_CLASSES_MAX - 1;  // class 0's

// The most urgent class first; the last band is that of jobs that let others go first.
BandSpec SpecOf(const QosRequest& request, const std::string& kind, int ifindex) {
  BandSpec spec;
  spec.kind = kind;
  spec.num_bands = MLNET_QOS_BANDS;
  spec.other_band = kOtherBand;
  spec.band_of_priority.fill(kOtherBand);
  for (uint8_t p = 0; p <= MLNET_PRIORITY_WAITS; ++p) spec.band_of_priority[p] = static_cast<uint8_t>(MLNET_QOS_BAND(p));
  if (!request.weights.empty()) {
    spec.weights.assign(request.weights.rbegin(), request.weights.rend());
    spec.weights.push_back(1);
  }
  spec.rate_bps = request.rate_bps;
  spec.num_queues = datapath::NumTxQueues(ifindex);
  return spec;
}

// Best first. Without hardware queues of its own the kernel's are as good as any.
std::vector<std::string> KindsFor(const QosRequest& request) {
  if (request.kind != "auto") return {request.kind};
  if (request.weights.empty()) return {"mqprio", "prio", "ets", "htb"};
  return {"ets", "htb"};
}

Result<void> TryKind(const QosRequest& request, const std::string& kind, int ifindex, int classifier) {
  if (!request.weights.empty() && kind != "ets" && kind != "htb") {
    return Err(ErrorCode::kInvalidArgument, kind + " has no weights", "ets or htb has");
  }
  if (kind == "htb" && request.rate_bps == 0) {
    return Err(ErrorCode::kUnsupported, "set htb: it must know the rate of the link", "mlnetctl qos set " + request.iface + " --rate 25gbit");
  }
  if (kind == "htb" && classifier < 0) return Err(ErrorCode::kUnsupported, "set htb: it needs the tc program", "priority.attach");
  return datapath::SetBands(ifindex, SpecOf(request, kind, ifindex), classifier);
}

std::string QueueOf(const std::string& kind, uint32_t band) {
  if (kind == "htb") return fmt::format("6d6c:{:x}", MLNET_QOS_FIRST_LEAF + band);
  if (kind == "mqprio") return fmt::format("band {} of the NIC", band);
  return fmt::format("6d6c:{:x}", band + 1);
}

Json RowOf(const Json& name, int dscp, uint32_t priority, const Json& entry) {
  const std::string kind = entry.value("kind", "");
  const uint32_t band = MLNET_QOS_BAND(priority);
  const Json weights = entry.value("weights", Json::array());
  Json weight;
  if (!weights.empty()) weight = priority < weights.size() ? weights[priority] : Json(1);
  return {{"class", name}, {"dscp", dscp}, {"priority", priority}, {"band", band}, {"queue", QueueOf(kind, band)}, {"weight", weight}};
}

}  // namespace

std::optional<Qos::Before> Qos::BeforeOf(const Json& entry, const std::string& iface) {
  if (static_cast<int>(::if_nametoindex(iface.c_str())) != entry.value("ifindex", 0)) return std::nullopt;
  Before before;
  before.ifindex = entry.value("ifindex", 0);
  before.root.kind = entry.value("before", "");
  before.root.handle = entry.value("before_handle", 0u);
  before.root.options = entry.value("before_options", std::vector<uint8_t>{});
  return before;
}

Result<void> Qos::Restore(const Json& entry, const std::string& iface) {
  const auto before = BeforeOf(entry, iface);
  if (!before) return {};  // that interface is gone, and its qdisc with it
  auto ok = datapath::RestoreRootQdisc(before->ifindex, before->root);
  if (!ok) ok.error().message = iface + ": " + ok.error().message;
  return ok;
}

Result<Json> Qos::Set(const QosRequest& request, int classifier, const control::DscpTable& dscp) {
  const int ifindex = static_cast<int>(::if_nametoindex(request.iface.c_str()));
  if (ifindex == 0) return Err(ErrorCode::kUnavailable, "there is no interface '" + request.iface + "'", "mlnetctl iface list");
  if (auto ok = Clear(request.iface); !ok) return tl::make_unexpected(ok.error());
  const auto before = datapath::ReadRootQdisc(ifindex);
  if (!before) return tl::make_unexpected(before.error());
  if (before->has_parts || before->handle == datapath::kQosHandle) {
    return Err(ErrorCode::kConflict, request.iface + " has a qdisc with classes of somebody's ('" + before->kind + "'), which would be lost",
               "tc qdisc show dev " + request.iface);
  }
  Json entry = {{"ifindex", ifindex}, {"before", before->kind}, {"before_handle", before->handle}, {"before_options", before->options},
                {"rate_bps", request.rate_bps}, {"weights", request.weights}};
  Error error;
  for (const std::string& kind : KindsFor(request)) {
    entry["kind"] = kind;
    // First the note, then the deed: a crash between the two restores what is there anyway.
    if (auto ok = state_.Remember(kSection, request.iface, entry); !ok) return tl::make_unexpected(ok.error());
    const auto ok = TryKind(request, kind, ifindex, classifier);
    if (ok) {
      ifaces_.insert(request.iface);
      spdlog::info("{}: queues by priority, {}", request.iface, kind);
      return Show(request.iface, dscp);
    }
    if (auto restored = Restore(entry, request.iface); !restored) spdlog::error("{}", restored.error().ToString());
    error.code = ok.error().code;
    error.message += (error.message.empty() ? "" : "; ") + ok.error().message;
    if (!ok.error().hint.empty()) error.hint = ok.error().hint;
  }
  state_.Forget(kSection, request.iface);
  error.message = request.iface + " has no queues by priority: " + error.message;
  return tl::make_unexpected(error);
}

Result<void> Qos::Clear(const std::string& iface) {
  if (!ifaces_.contains(iface)) return {};
  const auto restored = Restore(state_.Find(kSection, iface), iface);
  ifaces_.erase(iface);
  state_.Forget(kSection, iface);
  if (restored) spdlog::info("{}: queues by priority are gone, its qdisc is back", iface);
  return restored;
}

Json Qos::Show(const std::string& iface, const control::DscpTable& dscp) const {
  const Json entry = ifaces_.contains(iface) ? state_.Find(kSection, iface) : Json::object();
  Json shown = {{"iface", iface}, {"is_set", !entry.empty()}, {"classes", Json::array()}, {"note", kXdpNote}};
  const auto root = datapath::ReadRootQdisc(static_cast<int>(::if_nametoindex(iface.c_str())));
  shown["qdisc"] = root ? Json(root->kind) : Json(nullptr);
  if (entry.empty()) return shown;
  shown["mode"] = entry["weights"].empty() ? "strict" : "weighted";
  shown["rate_bps"] = entry["rate_bps"];
  shown["before"] = entry["before"];
  for (uint32_t c = MLNET_CLASSES_MAX; c-- > 0;) shown["classes"].push_back(RowOf(c, dscp.at(c), c, entry));
  shown["classes"].push_back(RowOf("waiting jobs", control::kLowerEffort, MLNET_PRIORITY_WAITS, entry));
  return shown;
}

void Qos::ClearAll() {
  while (!ifaces_.empty()) {
    if (auto ok = Clear(*ifaces_.begin()); !ok) spdlog::warn("{}", ok.error().ToString());
  }
}

void Qos::TakeOver() {
  for (const auto& [iface, entry] : state_.All(kSection).items()) {
    if (BeforeOf(entry, iface)) ifaces_.insert(iface);
  }
  Undo();  // of interfaces that are others by now
}

void Qos::Undo() {
  state_.UndoAll(kSection, ifaces_, [](const std::string& iface, const Json& entry) {
    if (auto ok = Restore(entry, iface); !ok) spdlog::warn("{}", ok.error().ToString());
  });
}

}  // namespace mlnet::daemon
