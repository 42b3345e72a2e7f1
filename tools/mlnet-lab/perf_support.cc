// SPDX-License-Identifier: Apache-2.0
#include "perf_support.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mlnet-perf/element_type.h"
#include "mlnet-perf/names.h"
#include "mlnet/limits.h"

namespace mlnet::lab {
namespace {

/// In lanes whose width is libmlnet's choice and not the type's.
bool IsFloatSum(const perf::Spec& spec) {
  return perf::TypeOf(spec.dtype).IsFloat() && spec.op == ReduceOp::kSum;
}

Result<void> CheckWire(WireType wire, const perf::Spec& spec) {
  if (wire == WireType::kInt32) return {};
  if (!IsFloatSum(spec) || spec.dtype == DataType::kFloat64) {
    return Err(ErrorCode::kUnsupported,
               fmt::format("wire type {} is for sums of float32, float16 and bfloat16, not for {} of {}",
                           perf::WireName(wire), perf::OpName(spec.op), perf::TypeOf(spec.dtype).name),
               "--wire int32");
  }
  const int ranks_max = wire == WireType::kInt8 ? kInt8RanksMax : kInt16RanksMax;
  if (spec.world_size > ranks_max) {
    return Err(ErrorCode::kUnsupported,
               fmt::format("wire type {} leaves too few levels with {} ranks (more than {})",
                           perf::WireName(wire), spec.world_size, ranks_max),
               "a wider --wire, or fewer --ranks-per-host");
  }
  return {};
}

Result<void> CheckPeer(const std::string& peer, const perf::Spec& spec) {
  const perf::ElementType& type = perf::TypeOf(spec.dtype);
  const std::string hint = fmt::format("another --dtype, or no {} in --compare", peer);
  if (peer == "gloo-fp16" && (spec.dtype != DataType::kFloat32 || spec.op != ReduceOp::kSum)) {
    return Err(ErrorCode::kUnsupported,
               fmt::format("gloo-fp16 is for sums of float32, not for {} of {}", perf::OpName(spec.op), type.name), hint);
  }
  if (spec.dtype == DataType::kBFloat16 || (peer == "mpi" && spec.dtype == DataType::kFloat16)) {
    return Err(ErrorCode::kUnsupported, fmt::format("{} has no {}", peer, type.name), hint);
  }
  // Its AVX code adds with saturation, and that is to stay (open-mpi/ompi issue 8045).
  if (peer == "mpi" && spec.op == ReduceOp::kSum && !type.IsFloat() && type.bytes < 4) {
    return Err(ErrorCode::kUnsupported,
               fmt::format("mpi saturates sums of {} instead of wrapping", type.name), hint);
  }
  return {};
}

}  // namespace

std::string Contender::Name() const {
  std::string name = IsMlnet() ? "mlnet " + std::string(perf::WireName(wire)) : backend;
  if (!shape.empty()) name += " " + shape;
  return placement == "racks" ? name : name + " " + placement;
}

Result<std::vector<WireType>> ParseWires(const std::vector<std::string>& names) {
  std::vector<WireType> wires;
  for (const std::string& name : names) {
    const auto wire = perf::FindWire(name);
    if (!wire) {
      return Err(ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is no wire type; there are {}", name, fmt::join(perf::WireNames(), ", ")),
                 "--wire int32");
    }
    wires.push_back(*wire);
  }
  return wires;
}

Result<void> CheckSupport(const std::vector<Contender>& contenders, const perf::Spec& spec) {
  for (const Contender& contender : contenders) {
    auto ok = contender.IsMlnet() ? CheckWire(contender.wire, spec) : CheckPeer(contender.backend, spec);
    if (!ok) return ok;
  }
  return {};
}

std::vector<Host> PlaceHosts(const std::vector<Host>& workers, const std::string& placement) {
  std::vector<std::vector<Host>> racks;
  for (const Host& host : workers) {
    auto its = std::find_if(racks.begin(), racks.end(),
                            [&](const auto& rack) { return rack.front().rack == host.rack; });
    if (its == racks.end()) its = racks.insert(racks.end(), std::vector<Host>{});
    its->push_back(host);
  }
  std::vector<Host> placed;
  if (placement == "racks") {
    for (const auto& rack : racks) placed.insert(placed.end(), rack.begin(), rack.end());
    return placed;
  }
  for (size_t i = 0; placed.size() < workers.size(); ++i) {
    for (const auto& rack : racks) {
      if (i < rack.size()) placed.push_back(rack[i]);
    }
  }
  return placed;
}

std::string BoundName(const Contender& contender, const perf::Spec& spec) {
  if (!contender.IsMlnet() || !IsFloatSum(spec)) return "";
  return spec.keeps_small && contender.wire == WireType::kInt32 ? "element" : "block";
}

}  // namespace mlnet::lab
