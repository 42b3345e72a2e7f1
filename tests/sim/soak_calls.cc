// SPDX-License-Identifier: Apache-2.0
#include "sim/soak_calls.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace mlnet::sim {
namespace {

using worker::Caller;
using worker::CollectiveKind;

// Small ones often: they meet the edges of packets and pools.
size_t RandomCount(std::mt19937_64& random) { return 1 + random() % (size_t{1} << (4 + random() % 11)); }

// SplitMix64: most of what is random here is data, and a Mersenne twister takes as long to make it as the network to carry it.
class Bits {
 public:
  explicit Bits(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }

 private:
  uint64_t state_;
};

// A sign, 23 bits of fraction, magnitudes over some powers of two; a zero now and then.
float FloatOf(uint64_t bits) {
  if (bits >> 58 == 0) return 0;
  const auto exponent = static_cast<uint32_t>(127 - 12 + (bits >> 32 & 0xffff) % 23);
  return std::bit_cast<float>(static_cast<uint32_t>(bits & 0x807fffff) | exponent << 23);
}

template <typename T>
void FillRandom(std::vector<T>& values, uint64_t seed) {
  Bits bits(seed);
  if constexpr (std::is_integral_v<T>) {
    constexpr size_t kAtOnce = sizeof(uint64_t) / sizeof(T);
    for (size_t i = 0; i < values.size(); i += kAtOnce) {
      const uint64_t some = bits.Next();
      std::memcpy(&values[i], &some, std::min(kAtOnce, values.size() - i) * sizeof(T));
    }
  } else {
    for (T& value : values) value = FloatOf(bits.Next());
  }
}

template <typename T>
T Combined(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kMin: return std::min(a, b);
    case ReduceOp::kMax: return std::max(a, b);
    default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case ReduceOp::kBitAnd: return static_cast<T>(a & b);
      case ReduceOp::kBitOr: return static_cast<T>(a | b);
      case ReduceOp::kBitXor: return static_cast<T>(a ^ b);
      default: return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));  // wraps
    }
  }
  return a + b;
}

template <typename T>
constexpr DataType TypeOf() {
  if constexpr (std::is_same_v<T, float>) return DataType::kFloat32;
  else if constexpr (std::is_same_v<T, int8_t>) return DataType::kInt8;
  else if constexpr (std::is_same_v<T, uint8_t>) return DataType::kUint8;
  else if constexpr (std::is_same_v<T, int16_t>) return DataType::kInt16;
  else if constexpr (std::is_same_v<T, int32_t>) return DataType::kInt32;
  else return DataType::kInt64;
}

// All-reduce, reduce or reduce-scatter.
template <typename T>
class Reduction final : public SoakCall {
 public:
  Reduction(int ranks, CollectiveKind kind, ReduceOp op, WireType wire, std::mt19937_64& random)
      : ranks_(ranks), kind_(kind), op_(op), root_(static_cast<int>(random() % static_cast<uint64_t>(ranks))) {
    options_.wire = wire;
    part_ = RandomCount(random);
    count_ = kind == CollectiveKind::kReduceScatter ? part_ * static_cast<size_t>(ranks) : part_;
    for (int r = 0; r < ranks; ++r) {
      auto& in = in_.emplace_back(count_);
      FillRandom(in, random());
      out_.emplace_back(part_, T{});
    }
  }

  worker::CollectiveSpec SpecOf(int rank) override {
    options_.traffic_class = traffic_class;
    const auto r = static_cast<size_t>(rank);
    void* out = kind_ == CollectiveKind::kReduce && rank != root_ ? nullptr : out_[r].data();
    return Checked(worker::ReductionSpec(kind_, {rank, ranks_}, in_[r].data(), out, count_, TypeOf<T>(), op_, root_, options_));
  }

  std::string Check() const override {
    for (int r = 0; r < ranks_; ++r) {
      const std::vector<T>& out = out_[static_cast<size_t>(r)];
      if (kind_ == CollectiveKind::kReduce && r != root_) continue;
      if (kind_ == CollectiveKind::kAllReduce && r > 0) {
        if (std::memcmp(out.data(), out_[0].data(), part_ * sizeof(T)) != 0) return Text() + ": rank " + std::to_string(r) + " has other bits than rank 0";
        continue;
      }
      const size_t first = kind_ == CollectiveKind::kReduceScatter ? static_cast<size_t>(r) * part_ : 0;
      for (size_t i = 0; i < part_; ++i) {
        if (IsRight(first + i, out[i])) continue;
        return Text() + ": element " + std::to_string(first + i) + " of rank " + std::to_string(r) + " is " + std::to_string(out[i]);
      }
    }
    return {};
  }
  size_t elements() const override { return part_ * static_cast<size_t>(ranks_); }

 private:
  T Exact(size_t i) const {
    T value = in_[0][i];
    for (size_t r = 1; r < in_.size(); ++r) value = Combined(op_, value, in_[r][i]);
    return value;
  }

  // Small sums of floats are made in rank order, Exact() is that sum; the others have a bound.
  bool IsRight(size_t at, T got) const {
    if (got == Exact(at)) return true;
    if constexpr (std::is_same_v<T, float>) return op_ == ReduceOp::kSum && IsWithinBound(at, static_cast<double>(got));
    return false;
  }

  // communicator.h: n * M * 2^(ceil(log2 n) + 1 - L) over blocks of lanes, and one rounding.
  bool IsWithinBound(size_t at, double got) const {
    const int lane_bits = options_.wire == WireType::kInt32 ? 32 : options_.wire == WireType::kInt16 ? 16 : 8;
    const size_t block = block_bytes * 8 / static_cast<size_t>(lane_bits), begin = at / block * block, end = std::min(count_, begin + block);
    if (begin != block_begin_) {
      block_begin_ = begin;
      block_most_ = 0;
      for (const auto& in : in_) {
        for (size_t i = begin; i < end; ++i) block_most_ = std::max(block_most_, std::fabs(static_cast<double>(in[i])));
      }
    }
    double exact = 0;  // doubles hold sums of so few floats of so small a range exactly
    for (const auto& in : in_) exact += static_cast<double>(in[at]);
    const double bound = ranks_ * block_most_ * std::ldexp(1.0, CeilLog2(ranks_) + 1 - lane_bits);
    return std::fabs(got - exact) <= bound + std::ldexp(std::fabs(exact) + bound, -24);
  }

  std::string Text() const {
    return std::string(NameOf(TypeOf<T>())) + " " + NameOf(op_) + " as " + NameOf(options_.wire) + ", " + std::to_string(count_) + " elements";
  }

  const int ranks_;
  const CollectiveKind kind_;
  const ReduceOp op_;
  const int root_;
  CallOptions options_;
  size_t part_, count_;
  std::vector<std::vector<T>> in_, out_;
  mutable size_t block_begin_ = std::numeric_limits<size_t>::max();  // whose largest magnitude is known
  mutable double block_most_ = 0;
};

// Broadcast, all-gather, gather, scatter: each rank's bytes, and what each must have in the end.
class Copies final : public SoakCall {
 public:
  Copies(int ranks, CollectiveKind kind, std::mt19937_64& random)
      : ranks_(ranks), kind_(kind), root_(static_cast<int>(random() % static_cast<uint64_t>(ranks))), bytes_(RandomCount(random)) {
    const size_t all = bytes_ * static_cast<size_t>(ranks);
    whole_.resize(kind == CollectiveKind::kBroadcast ? bytes_ : all);
    FillRandom(whole_, random());
    for (int r = 0; r < ranks; ++r) {
      const bool has_all = kind == CollectiveKind::kAllGather || (kind == CollectiveKind::kGather && r == root_);
      out_.emplace_back(has_all ? all : bytes_, uint8_t{0xee});
      if (kind == CollectiveKind::kBroadcast && r == root_) out_.back() = whole_;
    }
  }

  worker::CollectiveSpec SpecOf(int rank) override {
    CallOptions options;
    options.traffic_class = traffic_class;
    const Caller caller{rank, ranks_};
    void* out = out_[static_cast<size_t>(rank)].data();
    const uint8_t* own = whole_.data() + static_cast<size_t>(rank) * bytes_;
    switch (kind_) {
      case CollectiveKind::kBroadcast: return Checked(worker::BroadcastSpec(caller, out, bytes_, root_, options));
      case CollectiveKind::kAllGather: return Checked(worker::AllGatherSpec(caller, own, out, bytes_, options));
      case CollectiveKind::kGather: return Checked(worker::GatherSpec(caller, own, rank == root_ ? out : nullptr, bytes_, root_, options));
      default: return Checked(worker::ScatterSpec(caller, rank == root_ ? whole_.data() : nullptr, out, bytes_, root_, options));
    }
  }

  std::string Check() const override {
    for (int r = 0; r < ranks_; ++r) {
      const auto& out = out_[static_cast<size_t>(r)];
      const size_t first = kind_ == CollectiveKind::kScatter ? static_cast<size_t>(r) * bytes_ : 0;
      const bool is_meant = kind_ != CollectiveKind::kGather || r == root_;
      if (is_meant && std::memcmp(out.data(), whole_.data() + first, out.size()) != 0) {
        return "copies of kind " + std::to_string(static_cast<int>(kind_)) + ": wrong bytes at rank " + std::to_string(r);
      }
    }
    return {};
  }
  size_t elements() const override { return whole_.size(); }

 private:
  const int ranks_;
  const CollectiveKind kind_;
  const int root_;
  const size_t bytes_;
  std::vector<uint8_t> whole_;
  std::vector<std::vector<uint8_t>> out_;
};

template <typename T>
std::unique_ptr<SoakCall> RandomIntegers(int ranks, CollectiveKind kind, std::mt19937_64& random) {
  return std::make_unique<Reduction<T>>(ranks, kind, static_cast<ReduceOp>(random() % 6), WireType::kInt32, random);
}

std::unique_ptr<SoakCall> RandomReduction(int ranks, std::mt19937_64& random) {
  constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllReduce, CollectiveKind::kReduce, CollectiveKind::kReduceScatter};
  const CollectiveKind kind = kKinds[random() % 4];
  switch (random() % 8) {
    case 0: return RandomIntegers<int8_t>(ranks, kind, random);
    case 1: return RandomIntegers<int16_t>(ranks, kind, random);
    case 2: return RandomIntegers<int32_t>(ranks, kind, random);
    case 3: return RandomIntegers<int64_t>(ranks, kind, random);
    case 4: return RandomIntegers<uint8_t>(ranks, kind, random);
    case 5: return std::make_unique<Reduction<float>>(ranks, kind, random() % 2 ? ReduceOp::kMin : ReduceOp::kMax, WireType::kInt32, random);
    default: return std::make_unique<Reduction<float>>(ranks, kind, ReduceOp::kSum, static_cast<WireType>(random() % 3), random);
  }
}

}  // namespace

std::unique_ptr<SoakCall> RandomCall(int ranks, std::mt19937_64& random) {
  constexpr CollectiveKind kCopies[] = {CollectiveKind::kBroadcast, CollectiveKind::kAllGather, CollectiveKind::kGather, CollectiveKind::kScatter};
  auto call = random() % 4 == 0 ? std::make_unique<Copies>(ranks, kCopies[random() % 4], random) : RandomReduction(ranks, random);
  return call;
}

}  // namespace mlnet::sim
