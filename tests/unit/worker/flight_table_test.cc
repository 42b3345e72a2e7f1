// SPDX-License-Identifier: Apache-2.0
#include "flight_table.h"

#include <gtest/gtest.h>

namespace mlnet::worker {
namespace {

std::vector<uint64_t> Order(FlightTable& table) {
  std::vector<uint64_t> seqs;
  for (uint32_t i = table.first(); i != FlightTable::kNone; i = table.at(i).next)
    seqs.push_back(table.at(i).seq);
  return seqs;
}

TEST(FlightTable, keeps_the_order_of_the_newest_transmission_across_2_to_the_32) {
  FlightTable table(4);
  const uint64_t base = (1ULL << 32) - 2;
  for (uint64_t s = base; s < base + 4; ++s) table.Add(s, s);
  EXPECT_EQ(Order(table), (std::vector<uint64_t>{base, base + 1, base + 2, base + 3}));
  table.Touch(*table.Find(base + 1), 99);
  EXPECT_EQ(Order(table), (std::vector<uint64_t>{base, base + 2, base + 3, base + 1}));
  EXPECT_EQ(table.Find(base + 1)->transmissions, 2u);
  EXPECT_EQ(table.Find(base + 1)->sent_ns, 99u);
  table.Remove(*table.Find(base));
  table.Remove(*table.Find(base + 1));
  EXPECT_EQ(Order(table), (std::vector<uint64_t>{base + 2, base + 3}));
  EXPECT_EQ(table.Find(base), nullptr);
  EXPECT_EQ(table.Find(base + 4), nullptr);  // same slot, another seq
  table.Add(base + 4, 100);
  EXPECT_EQ(table.size(), 3u);
  table.Clear();
  EXPECT_TRUE(Order(table).empty());
  EXPECT_EQ(table.size(), 0u);
}

}  // namespace
}  // namespace mlnet::worker
