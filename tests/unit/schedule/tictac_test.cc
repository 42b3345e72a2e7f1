// SPDX-License-Identifier: Apache-2.0
// The golden vectors of TicTac's released code, and its orders against all orders of small graphs.
#include "schedule/tictac.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "schedule/layers.h"

namespace mlnet::schedule {
namespace {

constexpr uint32_t kA = 0, kB = 1, kC = 2, kD = 3;

Operation Receive(uint64_t time) { return {Operation::Kind::kReceive, time, {}}; }
Operation Compute(uint64_t time, std::vector<uint32_t> after) {
  return {Operation::Kind::kCompute, time, std::move(after)};
}

// f1{A} -> f2{B}, f1 -> f3{C}, (f2, f3) -> f4{D}
Graph Diamond(uint64_t b = 1, uint64_t c = 1, uint64_t f2 = 1, uint64_t f3 = 1) {
  return {Receive(1),          Receive(b),           Receive(c),           Receive(1),
          Compute(1, {kA}), Compute(f2, {kB, 4}), Compute(f3, {kC, 4}), Compute(1, {kD, 5, 6})};
}

Graph Chain() {
  return {Receive(1),          Receive(1),          Receive(1),          Receive(1),
          Compute(1, {kA}), Compute(1, {kB, 4}), Compute(1, {kC, 5}), Compute(1, {kD, 6})};
}

std::vector<uint32_t> OrderOf(const std::vector<ReceivePriority>& priorities) {
  std::vector<uint32_t> order;
  for (const auto& p : priorities) order.push_back(p.operation);
  return order;
}

void ExpectTic(const Graph& graph, const std::vector<uint32_t>& priorities, const std::vector<uint64_t>& together) {
  const auto tic = Tic(graph);
  ASSERT_EQ(tic.size(), priorities.size());
  for (size_t i = 0; i < tic.size(); ++i) {
    EXPECT_EQ(tic[i].operation, i);
    EXPECT_EQ(tic[i].priority, priorities[i]) << i;
    EXPECT_EQ(tic[i].together_ns, together[i]) << i;
  }
}

struct AllOrders {
  uint64_t best = kInfinite, worst = 0;
  int num_best = 0, num_worst = 0;
  double mean = 0;
};

AllOrders Try(const Graph& graph) {
  std::vector<uint32_t> order = ReceivesOf(graph);
  AllOrders all;
  double count = 0;
  do {
    const uint64_t makespan = Makespan(graph, order);
    if (makespan < all.best) all.best = makespan, all.num_best = 0;
    if (makespan > all.worst) all.worst = makespan, all.num_worst = 0;
    all.num_best += makespan == all.best;
    all.num_worst += makespan == all.worst;
    all.mean += static_cast<double>(makespan);
    ++count;
  } while (std::next_permutation(order.begin(), order.end()));
  all.mean /= count;
  return all;
}

void ExpectTac(const Graph& graph, const std::vector<uint32_t>& order, uint64_t makespan, int num_best, uint64_t worst) {
  const auto tac = OrderOf(Tac(graph, ReceivesOf(graph)));
  EXPECT_EQ(tac, order);
  EXPECT_EQ(Makespan(graph, tac), makespan);
  const AllOrders all = Try(graph);
  EXPECT_EQ(all.best, makespan);
  EXPECT_EQ(all.num_best, num_best);
  EXPECT_EQ(all.worst, worst);
  EXPECT_EQ(all.num_worst, 6);
  EXPECT_EQ(Makespan(graph, std::vector<uint32_t>{kD, kC, kB, kA}), worst);
}

TEST(TicTac, tic_has_the_golden_priorities) {
  ExpectTic(Diamond(), {0, 0, 0, 3}, {2, 2, 2, 4});
  ExpectTic(Chain(), {0, 0, 2, 3}, {2, 2, 3, 4});
}

TEST(TicTac, tic_does_not_look_at_times) {
  ExpectTic(Diamond(3, 5, 7, 9), {0, 0, 0, 3}, {2, 2, 2, 4});
}

TEST(TicTac, tac_has_the_golden_orders_and_makespans) {
  ExpectTac(Diamond(), {kA, kB, kC, kD}, 5, 2, 8);
  ExpectTac(Diamond(3, 1, 1, 3), {kA, kC, kB, kD}, 7, 1, 12);
  ExpectTac(Diamond(1, 3, 3, 1), {kA, kB, kC, kD}, 7, 1, 12);
}

TEST(TicTac, tac_numbers_the_picks_whatever_order_the_receives_are_given_in) {
  const auto tac = Tac(Chain(), {kD, kC, kB, kA});
  EXPECT_EQ(OrderOf(tac), (std::vector<uint32_t>{kA, kB, kC, kD}));
  for (uint32_t i = 0; i < tac.size(); ++i) EXPECT_EQ(tac[i].priority, i);
}

TEST(TicTac, a_receive_that_nobody_waits_for_comes_last) {
  Graph graph = {Receive(1), Receive(1), Receive(1), Compute(1, {1, 2})};
  const auto tic = Tic(graph);
  EXPECT_EQ(tic[0].together_ns, kInfinite);
  EXPECT_EQ(tic[0].priority, 2u);
  EXPECT_EQ(OrderOf(Tac(graph, {0, 1, 2})).back(), 0u);
}

TEST(TicTac, a_graph_that_waits_for_what_comes_later_is_refused) {
  EXPECT_TRUE(Check(Diamond()).has_value());
  const auto cycle = Check({Receive(1), Compute(1, {2}), Compute(1, {1})});
  ASSERT_FALSE(cycle.has_value());
  EXPECT_EQ(cycle.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(cycle.error().message, "operation 1 waits for operation 2");
  EXPECT_FALSE(Check({Compute(1, {0})}).has_value());
}

TEST(TicTac, efficiency_is_one_where_nothing_can_be_faster_and_nought_where_nothing_overlaps) {
  const Graph two = {Receive(4), Compute(4, {})};
  EXPECT_DOUBLE_EQ(Efficiency(two, 4), 1);
  EXPECT_DOUBLE_EQ(Efficiency(two, 8), 0);
  EXPECT_DOUBLE_EQ(Efficiency(Diamond(), 5), 0.75);  // U = 8, L = 4
  EXPECT_DOUBLE_EQ(Efficiency({Receive(4)}, 4), 1);
}

// Every computation waits for at least one receive, as in a forward pass.
Graph AnyGraph(std::mt19937& random, uint32_t num_receives) {
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Graph graph;
  for (uint32_t i = 0; i < num_receives; ++i) graph.push_back(Receive(1 + below(9)));
  const uint32_t num_computes = num_receives + below(4);
  for (uint32_t i = 0; i < num_computes; ++i) {
    std::vector<uint32_t> after = {i < num_receives ? i : below(num_receives)};
    for (uint32_t more = below(3); more > 0; --more) after.push_back(below(num_receives + i));
    graph.push_back(Compute(1 + below(9), after));
  }
  return graph;
}

TEST(TicTac, for_a_chain_of_layers_tac_is_layer_order_whatever_the_times) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::vector<Layer> layers(2 + seed % 10);
    for (Layer& layer : layers) layer = {0, 1 + random() % 50, 1 + random() % 50};
    const Graph graph = ForwardGraph(layers);
    ASSERT_TRUE(Check(graph).has_value());
    const auto tac = OrderOf(Tac(graph, ReceivesOf(graph)));
    ASSERT_TRUE(std::is_sorted(tac.begin(), tac.end()));
    ASSERT_EQ(Makespan(graph, tac), BestIteration(layers));
  }
}

TEST(TicTac, of_two_receives_tac_always_takes_the_better_order) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Graph graph = AnyGraph(random, 2);
    ASSERT_TRUE(Check(graph).has_value());
    ASSERT_EQ(Makespan(graph, OrderOf(Tac(graph, ReceivesOf(graph)))), Try(graph).best);
  }
}

TEST(TicTac, on_random_graphs_tac_is_near_the_best_of_all_orders) {
  double tac_sum = 0, best_sum = 0, mean_sum = 0, efficiency = 0;
  int num_optimal = 0;
  constexpr int kGraphs = 300;
  for (uint32_t seed = 0; seed < kGraphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Graph graph = AnyGraph(random, 3 + seed % 4);
    const uint64_t tac = Makespan(graph, OrderOf(Tac(graph, ReceivesOf(graph))));
    const AllOrders all = Try(graph);
    ASSERT_GE(tac, all.best);
    ASSERT_LE(tac, all.worst);
    num_optimal += tac == all.best;
    tac_sum += static_cast<double>(tac);
    best_sum += static_cast<double>(all.best);
    mean_sum += all.mean;
    efficiency += Efficiency(graph, tac) / kGraphs;
  }
  std::printf("TAC: %.4f of the best makespan, a random order %.4f; optimal in %d of %d graphs; mean E %.3f\n",
              tac_sum / best_sum, mean_sum / best_sum, num_optimal, kGraphs, efficiency);
  // It is a heuristic: its mean must lie in the best tenth of the way from best to random.
  EXPECT_LE(tac_sum - best_sum, 0.1 * (mean_sum - best_sum));
}

}  // namespace
}  // namespace mlnet::schedule
