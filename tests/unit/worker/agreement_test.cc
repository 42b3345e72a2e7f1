// SPDX-License-Identifier: Apache-2.0
// What the ranks agree on when the ring takes over, for reports of random runs of the slot protocol's rules.
#include "ring/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "ring/held_table.h"

namespace mlnet::worker {
namespace {

// Ranks that send and consume by rules 2 and 3, with an aggregator that completes what all have sent; stopped at any moment.
struct ProtocolRun {
  ProtocolRun(size_t num_ranks, uint64_t num_slots, std::mt19937_64& random) : slots(num_slots), sent(num_ranks), consumed(num_ranks) {
    const uint64_t steps = random() % (40 * slots * num_ranks);
    for (uint64_t i = 0; i < steps; ++i) {
      const size_t rank = random() % num_ranks;
      random() % 2 == 0 ? Send(rank) : Consume(rank, random);
    }
  }

  void Send(size_t rank) {
    const uint64_t s = sent[rank];
    if (s < slots || consumed[rank].contains(s - slots)) ++sent[rank];
  }
  // Results arrive in any order, or are lost on their way for now.
  void Consume(size_t rank, std::mt19937_64& random) {
    const uint64_t complete = *std::min_element(sent.begin(), sent.end());
    if (complete == 0) return;
    const uint64_t s = complete - 1 - random() % std::min(complete, slots);
    consumed[rank].insert(s);
  }
  Held Report(size_t rank) const {
    uint64_t oldest = 0;
    while (consumed[rank].contains(oldest)) ++oldest;
    Held held = HeldFrom(oldest, static_cast<uint32_t>(slots));
    for (const uint64_t s : consumed[rank]) {
      if (s >= oldest) held.Add(s);
    }
    return held;
  }

  uint64_t slots;
  std::vector<uint64_t> sent;  // next to send
  std::vector<std::set<uint64_t>> consumed;
};

TEST(AgreementTest, what_anybody_has_goes_to_all_and_only_the_rest_is_summed_again) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2'000; ++round) {
    const size_t n = 1 + random() % 6;
    const uint64_t slots = 1ULL << random() % 8;
    const ProtocolRun run(n, slots, random);
    std::vector<Held> reports;
    for (size_t r = 0; r < n; ++r) reports.push_back(run.Report(r));
    const auto settled = Settle(reports, static_cast<uint32_t>(slots));
    ASSERT_TRUE(settled) << settled.error().ToString();
    const uint64_t end = *std::max_element(run.sent.begin(), run.sent.end()) + slots;
    for (uint64_t s = 0; s < end; ++s) {
      size_t first = n, count = 0;
      for (size_t r = n; r-- > 0;) {
        if (!run.consumed[r].contains(s)) continue;
        first = r;
        ++count;
      }
      const int expected = count == n ? kWithAll : count == 0 ? kSummedAgain : static_cast<int>(first);
      ASSERT_EQ(settled->HolderOf(s), expected) << "packet " << s << " of " << slots << " slots, " << n << " ranks, round " << round;
      if (expected != kSummedAgain) continue;
      // Whoever sent it can build it again: its result has not been consumed, and nobody is a pool further.
      for (size_t r = 0; r < n; ++r) ASSERT_FALSE(run.sent[r] > s && run.consumed[r].contains(s));
    }
  }
}

TEST(AgreementTest, reports_that_break_the_rules_are_refused) {
  Held slow = HeldFrom(100, 64), fast = HeldFrom(165, 64);
  EXPECT_FALSE(Settle(std::vector{slow, fast}, 64));
  fast = HeldFrom(164, 64);
  EXPECT_TRUE(Settle(std::vector{slow, fast}, 64));
  fast.Add(170);
  const auto settled = Settle(std::vector{slow, fast}, 64);
  ASSERT_FALSE(settled);
  EXPECT_THAT(settled.error().message, ::testing::HasSubstr("rank 1 holds the result of packet 170"));
}

TEST(HeldTableTest, reports_survive_the_way_and_others_are_refused) {
  EngineConfig config;
  config.world_size = 2;
  config.trees.resize(2);
  for (size_t t = 0; t < 2; ++t) {
    config.trees[t].tree = static_cast<uint8_t>(t);
    config.trees[t].pools[1] = {true, 7, 0, 0};
    config.trees[t].fixups[1] = {true, 3, 0, 0};
  }
  HeldTable table(LanesOf(config), config.world_size);
  const std::vector<uint32_t> slots = {128, 8, 128, 8};
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<Held> held;
    for (const uint32_t p : slots) {
      held.push_back(HeldFrom(1000, p));
      if (rank == 1) held.back().Add(1000 + p - 1);
    }
    EXPECT_FALSE(table.IsComplete());
    EXPECT_EQ(table.FirstMissing(), rank);
    const auto report = table.Encode(rank, held);
    EXPECT_FALSE(table.Take(std::span(report).first(report.size() - 8)));
    ASSERT_TRUE(table.Take(report));
  }
  ASSERT_TRUE(table.IsComplete());
  const auto settled = table.SettleAll();
  ASSERT_TRUE(settled);
  ASSERT_EQ(settled->size(), 4u);
  for (size_t lane = 0; lane < 4; ++lane) {
    EXPECT_EQ((*settled)[lane].HolderOf(999), kWithAll);
    EXPECT_EQ((*settled)[lane].HolderOf(1000), kSummedAgain);
    EXPECT_EQ((*settled)[lane].HolderOf(1000 + slots[lane] - 1), 1);
  }
  auto other = table.Encode(2, {HeldFrom(0, 128), HeldFrom(0, 8), HeldFrom(0, 128), HeldFrom(0, 8)});
  EXPECT_FALSE(table.Take(other)) << "there is no rank 2";
}

}  // namespace
}  // namespace mlnet::worker
