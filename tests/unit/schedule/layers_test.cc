// SPDX-License-Identifier: Apache-2.0
// Times worked out by hand, and the theorem that the first layer first is the best order: against all orders, and
// against all schedules of a link that is cut into moments.
#include "schedule/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "schedule/graph.h"

namespace mlnet::schedule {
namespace {

using Layers = std::vector<Layer>;

std::vector<uint32_t> FirstToLast(size_t n) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

Layers AnyLayers(std::mt19937& random, size_t n, uint32_t time_max) {
  Layers layers(n);
  for (Layer& layer : layers) {
    layer = {random() % (time_max + 1), random() % (time_max + 1), random() % (2 * time_max + 1)};
  }
  return layers;
}

// backward of 2 ends at 10, of 1 at 20, of 0 at 30
const Layers kThree = {{10, 10, 10}, {10, 10, 10}, {10, 10, 40}};

TEST(Layers, times_of_three_layers_are_those_worked_out_by_hand) {
  EXPECT_EQ(ReadyTimes(kThree), (std::vector<uint64_t>{30, 20, 10}));
  // Sent as they appear: layer 2 10..50, layer 1 50..60, layer 0 60..70, then forward.
  EXPECT_EQ(FifoIteration(kThree), 100u);
  // Interrupted: 2 10..20, 1 20..30, 0 30..40, 2 40..70; forward of 0 40..50, of 1 50..60, of 2 70..80.
  EXPECT_EQ(BestIteration(kThree), 80u);
  EXPECT_EQ(IterationInOrder(kThree, FirstToLast(3), Link::kPreemptive), 80u);
  EXPECT_EQ(PrefixDone(kThree), (std::vector<uint64_t>{40, 40, 70}));
  // Whole transfers, first layer first: the link idles until 30, then 0 ..40, 1 ..50, 2 ..90.
  EXPECT_EQ(IterationInOrder(kThree, FirstToLast(3), Link::kSequential), 100u);
}

TEST(Layers, without_transfers_an_iteration_is_what_is_computed) {
  const Layers layers = {{1, 2, 0}, {3, 4, 0}, {5, 6, 0}};
  EXPECT_EQ(BestIteration(layers), 21u);
  EXPECT_EQ(FifoIteration(layers), 21u);
  EXPECT_EQ(BestIteration({}), 0u);
}

TEST(Layers, transfer_time_is_rounded_up_and_does_not_overflow) {
  EXPECT_EQ(TransferNs(0, 3), 0u);
  EXPECT_EQ(TransferNs(1, 3), 333333334u);
  EXPECT_EQ(TransferNs(uint64_t{1} << 40, uint64_t{1} << 30), 1024000000000u);
}

TEST(Layers, no_order_of_up_to_eight_transfers_beats_the_first_layer_first) {
  for (size_t n = 1; n <= 8; ++n) {
    const uint32_t num_seeds = n < 8 ? 40 : 10;
    for (uint32_t seed = 0; seed < num_seeds; ++seed) {
      SCOPED_TRACE("layers " + std::to_string(n) + " seed " + std::to_string(seed));
      std::mt19937 random(seed);
      const Layers layers = AnyLayers(random, n, 20);
      uint64_t best_preemptive = kInfinite, best_sequential = kInfinite;
      auto order = FirstToLast(n);
      do {
        best_preemptive = std::min(best_preemptive, IterationInOrder(layers, order, Link::kPreemptive));
        best_sequential = std::min(best_sequential, IterationInOrder(layers, order, Link::kSequential));
      } while (std::next_permutation(order.begin(), order.end()));
      ASSERT_EQ(best_preemptive, IterationInOrder(layers, FirstToLast(n), Link::kPreemptive));
      ASSERT_EQ(best_preemptive, BestIteration(layers));
      ASSERT_LE(best_preemptive, best_sequential);
      ASSERT_LE(best_sequential, FifoIteration(layers));
    }
  }
}

// At each moment any transfer that is ready may have the link, or, in the first moments, none: all of it tried.
class AllSchedules {
 public:
  explicit AllSchedules(Layers layers) : layers_(std::move(layers)), ready_(ReadyTimes(layers_)) {}

  uint64_t Best() {
    std::vector<uint64_t> left, done(layers_.size(), 0);
    for (const Layer& layer : layers_) left.push_back(layer.transfer_ns);
    return From(0, left, done);
  }

 private:
  uint64_t From(uint64_t now, std::vector<uint64_t>& left, std::vector<uint64_t>& done) {
    if (std::all_of(left.begin(), left.end(), [](uint64_t l) { return l == 0; })) return EndOfForward(layers_, done);
    const auto key = std::make_tuple(now, left, done);
    if (const auto it = known_.find(key); it != known_.end()) return it->second;
    uint64_t best = kInfinite;
    bool is_any_ready = false;
    for (size_t i = 0; i < left.size(); ++i) {
      if (left[i] == 0 || ready_[i] > now) continue;
      is_any_ready = true;
      const uint64_t done_before = done[i];
      if (--left[i] == 0) done[i] = now + 1;
      best = std::min(best, From(now + 1, left, done));
      ++left[i];
      done[i] = done_before;
    }
    if (!is_any_ready || now < 3) best = std::min(best, From(now + 1, left, done));  // idle
    return known_[key] = best;
  }

  Layers layers_;
  std::vector<uint64_t> ready_;
  std::map<std::tuple<uint64_t, std::vector<uint64_t>, std::vector<uint64_t>>, uint64_t> known_;
};

TEST(Layers, no_schedule_at_all_beats_the_bound) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Layers layers = AnyLayers(random, 1 + seed % 4, 2);
    ASSERT_EQ(AllSchedules(layers).Best(), BestIteration(layers));
  }
}

}  // namespace
}  // namespace mlnet::schedule
