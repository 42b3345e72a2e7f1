// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/trace.h"

#include <algorithm>
#include <cmath>

#include "base/read_file.h"

namespace mlnet::perf {
namespace {

using Json = nlohmann::json;

constexpr const char* kSchema = "mlnet.trace/1";

uint64_t Divide(uint64_t value, double divisor) { return static_cast<uint64_t>(std::llround(static_cast<double>(value) / divisor)); }

}  // namespace

uint64_t Trace::Bytes() const {
  uint64_t sum = 0;
  for (const TraceLayer& layer : layers) sum += layer.bytes;
  return sum;
}

uint64_t Trace::ComputeNs() const {
  uint64_t sum = 0;
  for (const TraceLayer& layer : layers) sum += layer.forward_ns + layer.backward_ns;
  return sum;
}

Result<Trace> ParseTrace(const Json& json, const std::string& where) {
  const auto refuse = [&where](const std::string& why) {
    return Err(ErrorCode::kInvalidArgument, where + ": " + why, "traces are recorded by tools/mlnet-perf/traces/record.py");
  };
  Trace trace;
  try {  // the JSON library throws; nobody else hears of it
    if (json.at("schema") != kSchema) return refuse(std::string("its schema is not ") + kSchema);
    trace.model = json.at("model");
    for (const Json& row : json.at("layers")) {
      TraceLayer layer;
      layer.name = row.at("name");
      layer.bytes = row.at("bytes");
      layer.forward_ns = row.at("forward_ns");
      layer.backward_ns = row.at("backward_ns");
      layer.needs = row.at("needs").get<std::vector<uint32_t>>();
      const size_t own = trace.layers.size();
      if (layer.bytes == 0 || layer.bytes % sizeof(float) != 0) return refuse("layer '" + layer.name + "' has no whole floats");
      if (std::any_of(layer.needs.begin(), layer.needs.end(), [own](uint32_t i) { return i >= own; })) {
        return refuse("layer '" + layer.name + "' needs one that is not before it");
      }
      trace.layers.push_back(std::move(layer));
    }
  } catch (const Json::exception& error) {
    return refuse(error.what());
  }
  if (trace.layers.empty()) return refuse("it has no layers");
  return trace;
}

Result<Trace> LoadTrace(const std::string& file) {
  const auto text = ReadFile(file);
  if (!text) return tl::make_unexpected(text.error());
  return ParseTrace(Json::parse(*text, nullptr, false), file);
}

Trace Scaled(const Trace& trace, double divisor) {
  Trace scaled = trace;
  for (TraceLayer& layer : scaled.layers) {
    layer.bytes = std::max<uint64_t>(1, Divide(layer.bytes / sizeof(float), divisor)) * sizeof(float);
    layer.forward_ns = Divide(layer.forward_ns, divisor);
    layer.backward_ns = Divide(layer.backward_ns, divisor);
  }
  return scaled;
}

}  // namespace mlnet::perf
