// SPDX-License-Identifier: Apache-2.0
// Shorthands of the sim tests: specs, checked collectives, one line for the traffic that happened.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "calls.h"
#include "sim/cluster.h"
#include "sim/reference.h"

namespace mlnet::sim {

using Works = std::vector<std::shared_ptr<Work>>;

inline worker::CollectiveSpec Spec(worker::CollectiveKind kind, const void* in, void* out, size_t count,
                                   int traffic_class = 0) {
  worker::CollectiveSpec spec;
  spec.kind = kind;
  spec.in = in;
  spec.out = out;
  spec.count = count;
  spec.traffic_class = traffic_class;
  return spec;
}

inline worker::CollectiveSpec AllReduceOf(const void* in, void* out, size_t count, DataType dtype,
                                          int traffic_class = 0) {
  auto spec = Spec(worker::CollectiveKind::kAllReduce, in, out, count, traffic_class);
  spec.dtype = dtype;
  return spec;
}

/// Calls as the public API makes them: an error fails the test.
inline worker::CollectiveSpec Checked(const Result<worker::CollectiveSpec>& spec) {
  EXPECT_TRUE(spec.has_value()) << (spec ? "" : spec.error().ToString());
  return spec.value_or(worker::CollectiveSpec{});
}

inline void ExpectDone(const Works& works) {
  for (const auto& work : works) {
    ASSERT_TRUE(work->IsDone());
    const auto outcome = work->Wait();
    EXPECT_TRUE(outcome.has_value()) << outcome.error().ToString();
  }
}

inline void ExpectError(const Works& works, ErrorCode code, const std::string& part) {
  for (const auto& work : works) {
    ASSERT_TRUE(work->IsDone());
    const auto outcome = work->Wait();
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, code) << outcome.error().ToString();
    EXPECT_NE(outcome.error().ToString().find(part), std::string::npos) << outcome.error().ToString();
  }
}

/// An all-reduce of random floats on all ranks: its buffers, and the check of its results.
class FloatCall {
 public:
  FloatCall(int ranks, size_t count, uint64_t seed, bool is_in_place = false)
      : count_(count), is_in_place_(is_in_place) {
    for (int r = 0; r < ranks; ++r) {
      in_.push_back(RandomFloats(count, seed * 1000 + static_cast<uint64_t>(r)));
      out_.push_back(is_in_place ? in_.back() : Floats(count, -1.0F));
    }
  }
  std::shared_ptr<Work> Submit(Cluster& cluster, int rank, int traffic_class = 0,
                               std::function<void(const Result<void>&)> on_done = {}) {
    const auto r = static_cast<size_t>(rank);
    const float* in = is_in_place_ ? out_[r].data() : in_[r].data();
    auto spec = AllReduceOf(in, out_[r].data(), count_, DataType::kFloat32, traffic_class);
    spec.on_done = std::move(on_done);
    return cluster.Submit(rank, spec);
  }
  /// Within the bound, and the same bits on all ranks.
  void Check() const {
    ExpectSumWithinBound(in_, out_[0]);
    for (const Floats& other : out_) {
      ASSERT_EQ(std::memcmp(other.data(), out_[0].data(), count_ * sizeof(float)), 0) << "ranks differ";
    }
  }
  const Floats& result() const { return out_[0]; }
  Floats& in(int rank) { return (is_in_place_ ? out_ : in_)[static_cast<size_t>(rank)]; }

 private:
  size_t count_;
  bool is_in_place_;
  std::vector<Floats> in_, out_;
};

/// Submits on all ranks at once, runs, checks.
inline void CheckFloats(Cluster& cluster, size_t count, uint64_t seed, bool is_in_place = false) {
  FloatCall call(cluster.ranks(), count, seed, is_in_place);
  Works works;
  for (int r = 0; r < cluster.ranks(); ++r) works.push_back(call.Submit(cluster, r));
  ASSERT_TRUE(cluster.RunUntilDone());
  ExpectDone(works);
  call.Check();
}

inline Faults OnePercentOfAll() {
  return {.drop = 0.01, .duplicate = 0.01, .reorder = 0.01, .corrupt = 0.01, .truncate = 0.002};
}

inline void PrintTraffic(Cluster& cluster) {
  const Traffic& t = cluster.traffic();
  const CommStats s = cluster.Stats(0);
  std::printf(
      "  %.2f ms virtual; %llu frames, %llu dropped, %llu duplicated, %llu reordered, %llu corrupted; "
      "rank 0: sent %llu, again %llu (early %llu), held %llu, busy %llu, rtt %llu us\n",
      static_cast<double>(cluster.now_ns()) / 1e6, static_cast<unsigned long long>(t.frames),
      static_cast<unsigned long long>(t.dropped), static_cast<unsigned long long>(t.duplicated),
      static_cast<unsigned long long>(t.reordered), static_cast<unsigned long long>(t.corrupted),
      static_cast<unsigned long long>(s.packets_sent), static_cast<unsigned long long>(s.retransmits),
      static_cast<unsigned long long>(s.early_resends), static_cast<unsigned long long>(s.held),
      static_cast<unsigned long long>(s.busy), static_cast<unsigned long long>(s.rtt_us));
}

}  // namespace mlnet::sim
