// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/layers_plan.h"

#include <algorithm>
#include <fstream>

#include "base/errno_error.h"
#include "base/read_file.h"
#include "schedule/class_map.h"
#include "schedule/order.h"
#include "schedule/tictac.h"

namespace mlnet::perf {
namespace {

using Json = nlohmann::json;
using schedule::ClassMap;
using schedule::Layer;

constexpr uint64_t kCreditsPerS = 50;
constexpr uint64_t kCreditBytesMin = 200'000;  // two chunks of some 70 packets: below, asking for exponents leaves the link idle

// MapLayers takes a layer's index for its priority, so the layers go by the order of theirs.
ClassMap MapPlaces(const std::vector<Layer>& layers, const std::vector<uint32_t>& places) {
  std::vector<Layer> by_place(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) by_place[places[i]] = layers[i];
  return schedule::MapLayers(by_place, schedule::kLevelsMax);
}

Json PolicyJson(const schedule::Policy& policy) {
  return {{"partition_bytes", policy.partition_bytes},
          {"credit_bytes", policy.credit_bytes},
          {"num_levels", policy.classes.num_levels},
          {"last_priority", policy.classes.last_priority}};
}

schedule::Policy PolicyOf(const Json& json) {
  schedule::Policy policy;
  policy.partition_bytes = json.at("partition_bytes");
  policy.credit_bytes = json.at("credit_bytes");
  policy.classes.num_levels = json.at("num_levels");
  policy.classes.last_priority = json.at("last_priority");
  return policy;
}

}  // namespace

std::vector<std::string> PolicyNames() { return {"fifo", "layers", "p3", "bytescheduler", "tac"}; }

std::vector<Layer> LayersAt(const Trace& trace, uint64_t bytes_per_s) {
  std::vector<Layer> layers;
  for (const TraceLayer& layer : trace.layers) {
    layers.push_back({layer.backward_ns, layer.forward_ns, schedule::TransferNs(layer.bytes, bytes_per_s)});
  }
  return layers;
}

std::vector<uint32_t> TacPlaces(const Trace& trace, uint64_t bytes_per_s) {
  schedule::Graph graph;
  std::vector<uint32_t> receives;
  for (size_t i = 0; i < trace.layers.size(); ++i) {
    const TraceLayer& layer = trace.layers[i];
    const auto receive = static_cast<uint32_t>(graph.size());
    receives.push_back(receive);
    graph.push_back({schedule::Operation::Kind::kReceive, schedule::TransferNs(layer.bytes, bytes_per_s), {}});
    schedule::Operation forward{schedule::Operation::Kind::kCompute, layer.forward_ns, {receive}};
    for (const uint32_t need : layer.needs) forward.after.push_back(2 * need + 1);
    graph.push_back(std::move(forward));
  }
  std::vector<uint32_t> places(trace.layers.size());
  for (const auto& place : schedule::Tac(graph, receives)) places[place.operation / 2] = place.priority;
  return places;
}

LayersPlan MakePlan(const Trace& trace, const std::string& policy, const PolicyOptions& options) {
  const auto layers = LayersAt(trace, options.bytes_per_s);
  LayersPlan plan;
  auto priorities = schedule::LayerPriorities(layers.size());
  if (policy == "fifo") priorities = schedule::FifoPriorities(layers.size());
  if (policy == "tac") priorities = TacPlaces(trace, options.bytes_per_s);
  if (policy != "fifo") {
    const ClassMap classes = MapPlaces(layers, priorities);
    const uint64_t credit = options.credit_bytes != 0 ? options.credit_bytes : std::max(options.bytes_per_s / kCreditsPerS, kCreditBytesMin);
    plan.policy = {.classes = classes, .credit_bytes = credit};
    const uint64_t partition = options.partition_bytes != 0 ? options.partition_bytes : credit / 2;
    if (policy == "bytescheduler") plan.policy = schedule::ByteSchedulerPolicy(classes, partition, credit);
    if (policy == "p3") {
      plan.policy = schedule::P3Policy(classes);
      plan.policy.credit_bytes = std::max(credit, 2 * plan.policy.partition_bytes);  // one is sent while the next asks
    }
  }
  for (size_t i = 0; i < trace.layers.size(); ++i) {
    const TraceLayer& layer = trace.layers[i];
    plan.tensors.push_back({layer.bytes / sizeof(float), priorities[i], layer.forward_ns, layer.backward_ns});
  }
  return plan;
}

Result<void> SavePlan(const std::string& file, const LayersPlan& plan) {
  Json tensors = Json::array();
  for (const PlannedTensor& t : plan.tensors) tensors.push_back({t.count, t.priority, t.forward_ns, t.backward_ns});
  const Json json = {{"policy", PolicyJson(plan.policy)}, {"tensors", tensors}, {"rate_calls", plan.rate_calls},
                     {"warmup", plan.warmup}, {"iterations", plan.iterations}};
  std::ofstream out(file, std::ios::trunc);
  out << json.dump() << "\n";
  out.close();
  if (!out) return tl::make_unexpected(ErrnoError("write " + file, errno));
  return {};
}

Result<LayersPlan> LoadPlan(const std::string& file) {
  const auto text = ReadFile(file);
  if (!text) return tl::make_unexpected(text.error());
  LayersPlan plan;
  try {
    const Json json = Json::parse(*text);
    plan.policy = PolicyOf(json.at("policy"));
    for (const Json& t : json.at("tensors")) plan.tensors.push_back({t.at(0), t.at(1), t.at(2), t.at(3)});
    plan.rate_calls = json.at("rate_calls");
    plan.warmup = json.at("warmup");
    plan.iterations = json.at("iterations");
  } catch (const Json::exception& error) {
    return Err(ErrorCode::kProtocol, file + ": " + error.what());
  }
  return plan;
}

}  // namespace mlnet::perf
