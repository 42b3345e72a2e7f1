// SPDX-License-Identifier: Apache-2.0
// mlnet-perf-gloo SPEC RANK: one rank over Gloo's TCP transport, with whichever of its all-reduce algorithms
// is fastest for the size. With Spec::travels_as_half float32 is reduced as float16, as a hook that compresses gradients
// does it: converted, reduced, converted back. Gloo throws; nothing of that leaves this file.
#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <exception>
#include <functional>
#include <memory>

#include "mlnet-perf/element_type.h"
#include "mlnet-perf/half.h"
#include "mlnet-perf/measure.h"

namespace mlnet::perf {
namespace {

static_assert(sizeof(gloo::float16) == sizeof(uint16_t));
uint16_t* Bits(gloo::float16* values) { return reinterpret_cast<uint16_t*>(values); }
const uint16_t* Bits(const void* values) { return static_cast<const uint16_t*>(values); }

void AddHalves(void* c, const void* a, const void* b, size_t count) {
  AddHalf(static_cast<uint16_t*>(c), Bits(a), Bits(b), count);
}
void AddToHalves(gloo::float16* x, const gloo::float16* y, size_t count) { AddHalf(Bits(x), Bits(x), Bits(y), count); }
const gloo::ReductionFunction<gloo::float16> kHalfSum(gloo::SUM, &AddToHalves);

enum Variant : size_t { kRing, kBcube, kHalvingDoubling };

class GlooBackend final : public Backend {
 public:
  GlooBackend(const Spec& spec, int rank, std::shared_ptr<gloo::Context> context)
      : spec_(spec), rank_(rank), context_(std::move(context)) {}

  Promise promise() const override { return spec_.travels_as_half ? Promise::kHalfAdds : Promise::kAdds; }
  std::vector<std::string> Variants() const override { return {"ring", "bcube", "halving-doubling"}; }

  Result<void> Prepare(void* buffer, size_t count, DataType dtype) override {
    caller_ = buffer_ = buffer;
    count_ = count;
    if (spec_.travels_as_half) {
      halves_.resize(count);
      buffer_ = halves_.data();
      dtype = DataType::kFloat16;
    }
    try {
      switch (dtype) {
        case DataType::kFloat32:
          return PrepareFor<float>();
        case DataType::kFloat64:
          return PrepareFor<double>();
        case DataType::kFloat16:
          return PrepareFor<gloo::float16>();
        case DataType::kInt8:
          return PrepareFor<int8_t>();
        case DataType::kUint8:
          return PrepareFor<uint8_t>();
        case DataType::kInt16:
          return PrepareFor<int16_t>();
        case DataType::kInt32:
          return PrepareFor<int32_t>();
        case DataType::kInt64:
          return PrepareFor<int64_t>();
        default:
          return Err(ErrorCode::kUnsupported, fmt::format("Gloo cannot reduce {}", TypeOf(dtype).name));
      }
    } catch (const std::exception& error) {
      return Err(ErrorCode::kSystem, fmt::format("Gloo: {}", error.what()));
    }
  }

  Result<void> AllReduce(size_t variant) override {
    if (spec_.travels_as_half) NarrowToHalf(static_cast<const float*>(caller_), Bits(halves_.data()), count_);
    try {
      reduce_(variant);
    } catch (const std::exception& error) {
      return Err(ErrorCode::kSystem, fmt::format("Gloo: {}", error.what()));
    }
    if (spec_.travels_as_half) WidenFromHalf(Bits(halves_.data()), static_cast<float*>(caller_), count_);
    return {};
  }

  Counters ReadCounters() override { return {0, 0, TcpRetransmits(spec_, rank_)}; }

 private:
  using Function = void (*)(void*, const void*, const void*, size_t);

  /// The operation as ring and bcube want it, and as the older halving-doubling does.
  template <typename T>
  std::pair<Function, const gloo::ReductionFunction<T>*> FunctionsFor() const {
    using Older = gloo::ReductionFunction<T>;
    if (spec_.op == ReduceOp::kMin) return {static_cast<Function>(&gloo::min<T>), Older::min};
    if (spec_.op == ReduceOp::kMax) return {static_cast<Function>(&gloo::max<T>), Older::max};
    if constexpr (std::is_same_v<T, gloo::float16>) return {&AddHalves, &kHalfSum};
    return {static_cast<Function>(&gloo::sum<T>), Older::sum};
  }

  template <typename T>
  Result<void> PrepareFor() {
    const auto [function, older] = FunctionsFor<T>();
    halving_doubling_.reset();  // before the next takes its place in the context
    halving_doubling_ = std::make_unique<gloo::AllreduceHalvingDoubling<T>>(
        context_, std::vector<T*>{static_cast<T*>(buffer_)}, static_cast<int>(count_), older);
    reduce_ = [this, function = function](size_t variant) {
      if (variant == kHalvingDoubling)
        halving_doubling_->run();
      else
        Reduce<T>(variant, function);
    };
    return {};
  }

  template <typename T>
  void Reduce(size_t variant, Function function) {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(variant == kRing ? gloo::AllreduceOptions::Algorithm::RING
                                          : gloo::AllreduceOptions::Algorithm::BCUBE);
    options.setReduceFunction(function);
    options.setOutput(static_cast<T*>(buffer_), count_);
    gloo::allreduce(options);
  }

  const Spec& spec_;
  const int rank_;
  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<gloo::Algorithm> halving_doubling_;
  std::function<void(size_t variant)> reduce_;
  void* caller_ = nullptr;
  std::vector<gloo::float16> halves_;  // of the caller's elements, where they travel so
  void* buffer_ = nullptr;             // what Gloo reduces
  size_t count_ = 0;
};

Result<std::shared_ptr<gloo::Context>> Connect(const Spec& spec, int rank) {
  try {
    gloo::transport::tcp::attr attributes;
    attributes.iface = spec.iface;
    attributes.ai_family = AF_INET;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(spec.dir + "/store");
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, spec.world_size);
    context->setTimeout(std::chrono::seconds(spec.timeout_s));
    context->connectFullMesh(store, device);
    return context;
  } catch (const std::exception& error) {
    return Err(ErrorCode::kSystem, fmt::format("Gloo: {}", error.what()));
  }
}

Result<std::vector<RankRow>> Run(const Spec& spec, int rank) {
  auto context = Connect(spec, rank);
  if (!context) return tl::make_unexpected(context.error());
  GlooBackend backend(spec, rank, std::move(*context));
  return Measure(spec, rank, backend);
}

}  // namespace
}  // namespace mlnet::perf

int main(int argc, char** argv) { return mlnet::perf::RankMain(argc, argv, "mlnet-lab perf", mlnet::perf::Run); }
