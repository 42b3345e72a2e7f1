// SPDX-License-Identifier: Apache-2.0
// mlnetctl qos: queues by priority on this host's NICs.
#include <algorithm>

#include "base/rate.h"
#include "daemon/daemon.h"

namespace mlnet::daemon {

using control::Json;

namespace {

constexpr uint32_t kWeightMax = 100;

Result<QosRequest> ReadRequest(const Json& params) {
  QosRequest request;
  auto name = rpc::Get<std::string>(params, "name");
  auto kind = rpc::GetOr<std::string>(params, "kind", request.kind);
  auto weights = rpc::GetOr<std::vector<uint32_t>>(params, "weights", {});
  auto rate = rpc::GetOr<std::string>(params, "rate", "");
  if (!name) return tl::make_unexpected(name.error());
  if (!kind) return tl::make_unexpected(kind.error());
  if (!weights) return tl::make_unexpected(weights.error());
  if (!rate) return tl::make_unexpected(rate.error());
  const auto kinds = {"auto", "mqprio", "prio", "ets", "htb"};
  if (std::find(kinds.begin(), kinds.end(), *kind) == kinds.end()) {
    return Err(ErrorCode::kInvalidArgument, "kind is '" + *kind + "', must be one of: auto, mqprio, prio, ets, htb");
  }
  const bool is_good = std::all_of(weights->begin(), weights->end(), [](uint32_t w) { return w >= 1 && w <= kWeightMax; });
  if (!weights->empty() && (weights->size() != MLNET_CLASSES_MAX || !is_good)) {
    return Err(ErrorCode::kInvalidArgument, "weights must be 8 numbers from 1 to 100, of classes 0 to 7");
  }
  if (!rate->empty()) {
    auto parsed = ParseRate(*rate);
    if (!parsed) return tl::make_unexpected(parsed.error());
    request.rate_bps = *parsed;
  }
  request.iface = *name;
  request.kind = *kind;
  request.weights = *weights;
  return request;
}

}  // namespace

Result<Json> Daemon::QosSet(const Json& params) {
  auto request = ReadRequest(params);
  if (!request) return tl::make_unexpected(request.error());
  const Json iface = ifaces_.Show(request->iface);
  if (iface["tags"].is_null()) {
    return Err(ErrorCode::kUnsupported, "what is sent by " + request->iface + " is not marked, so there is nothing to queue by",
               "mlnetctl iface attach " + request->iface + "; mlnetctl status");
  }
  for (const control::IfaceRecord& record : ifaces_.Records()) {
    if (record.name == request->iface && request->rate_bps == 0) request->rate_bps = record.rate_bps;
  }
  auto shown = qos_.Set(*request, ifaces_.ClassifierFd(), config_.priority.dscp);
  if (shown) (*shown)["schema"] = "mlnet.qos/1";
  return shown;
}

Result<Json> Daemon::QosClear(const Json& params) {
  auto name = rpc::Get<std::string>(params, "name");
  if (!name) return tl::make_unexpected(name.error());
  if (auto ok = qos_.Clear(*name); !ok) return tl::make_unexpected(ok.error());
  Json shown = qos_.Show(*name, config_.priority.dscp);
  shown["schema"] = "mlnet.qos/1";
  return shown;
}

Result<Json> Daemon::QosShow(const Json& params) {
  auto name = rpc::GetOr<std::string>(params, "name", "");
  if (!name) return tl::make_unexpected(name.error());
  Json rows = Json::array();
  for (const Json& iface : ifaces_.List()) {
    const std::string found = iface["name"];
    if (name->empty() ? iface["attached"] == true : found == *name) rows.push_back(qos_.Show(found, config_.priority.dscp));
  }
  if (!name->empty() && rows.empty()) return Err(ErrorCode::kUnavailable, "there is no interface '" + *name + "'", "mlnetctl iface list");
  return Json{{"schema", "mlnet.qos.show/1"}, {"ifaces", rows}};
}

}  // namespace mlnet::daemon
