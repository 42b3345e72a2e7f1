// SPDX-License-Identifier: Apache-2.0
// The ring's arithmetic against the definition of each operation, lane by lane, in arithmetic of its own.
#include "ring/ring_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace mlnet::worker {
namespace {

struct Contribution {
  mlnet_hdr header{};
  mlnet_trailer trailer{};
  std::vector<uint64_t> words;

  RingSum Sum() const {
    std::vector<std::byte> bytes(wire::kPacketBytesMax);
    bytes.resize(wire::Seal(header, words, trailer, bytes));
    wire::View view;
    EXPECT_TRUE(wire::Parse(bytes, view));
    return RingSum(view);
  }
};

Contribution Random(std::mt19937_64& random, uint8_t op, uint8_t wire, size_t words) {
  Contribution c;
  c.header.version_type = wire::VersionType(MLNET_T_CONTRIB);
  c.header.op_wire = wire::OpWire(op, wire);
  c.header.words = static_cast<uint16_t>(words);
  c.header.fingerprint = 77;
  c.header.flags = static_cast<uint8_t>(random() & MLNET_F_NONFINITE);
  c.trailer.weight = 1;
  for (uint8_t& exp : c.trailer.exps) exp = static_cast<uint8_t>(random());
  for (size_t i = 0; i < words; ++i) c.words.push_back(random());
  return c;
}

// The value of lane `lane` of `bits` bits, and back.
uint64_t LaneOf(uint64_t word, unsigned lane, unsigned bits) { return bits == 64 ? word : word >> lane * bits & ((1ULL << bits) - 1); }

uint64_t Expected(uint8_t op, const std::vector<Contribution>& all, size_t i) {
  const unsigned bits = op == MLNET_OP_MAX8 ? 8 : op == MLNET_OP_MAX16 ? 16 : op == MLNET_OP_ADD32 || op == MLNET_OP_MAX32 ? 32 : 64;
  uint64_t result = 0;
  for (unsigned lane = 0; lane < 64 / bits; ++lane) {
    uint64_t value = LaneOf(all[0].words[i], lane, bits);
    for (size_t r = 1; r < all.size(); ++r) {
      const uint64_t x = LaneOf(all[r].words[i], lane, bits);
      if (op == MLNET_OP_ADD64 || op == MLNET_OP_ADD32) value += x;
      else if (op == MLNET_OP_OR) value |= x;
      else if (op == MLNET_OP_XOR) value ^= x;
      else value = std::max(value, x);
    }
    result |= LaneOf(value, 0, bits) << lane * (bits % 64);
  }
  return result;
}

mlnet_cell CellOf(const RingSum& sum) {
  mlnet_cell cell{};
  std::fill_n(cell.w, MLNET_WORDS_MAX, 0xdeadULL);
  sum.WriteTo(cell);
  return cell;
}

TEST(RingSumTest, each_operation_gives_what_its_definition_says) {
  std::mt19937_64 random(1);
  for (uint8_t op = 0; op < MLNET_OP_COUNT; ++op) {
    for (const size_t words : {16UL, 48UL, 176UL}) {
      std::vector<Contribution> all;
      for (int r = 0; r < 5; ++r) all.push_back(Random(random, op, MLNET_WIRE_RAW, words));
      RingSum sum = all[0].Sum();
      for (size_t r = 1; r < all.size(); ++r) sum.Add(all[r].Sum());
      const mlnet_cell cell = CellOf(sum);
      EXPECT_EQ(cell.weight, 5);
      for (size_t i = 0; i < words; ++i) ASSERT_EQ(cell.w[i], Expected(op, all, i)) << "operation " << int{op} << ", word " << i;
      uint8_t flags = 0;
      for (const Contribution& c : all) flags |= c.header.flags;
      EXPECT_EQ(cell.flags, flags);
    }
  }
}

TEST(RingSumTest, exponents_merge_by_maximum_in_lanes_of_8_or_16_bits) {
  std::mt19937_64 random(2);
  for (const uint8_t wire : {MLNET_WIRE_BIASED32, MLNET_WIRE_FLOAT64}) {
    const Contribution a = Random(random, MLNET_OP_ADD64, wire, 16), b = Random(random, MLNET_OP_ADD64, wire, 16);
    RingSum sum = a.Sum();
    sum.Add(b.Sum());
    const mlnet_cell cell = CellOf(sum);
    const size_t lane = wire == MLNET_WIRE_FLOAT64 ? 2 : 1;
    for (size_t i = 0; i < MLNET_EXPS_BYTES; i += lane) {
      unsigned x = a.trailer.exps[i], y = b.trailer.exps[i], got = cell.exps[i];
      if (lane == 2) x += a.trailer.exps[i + 1] * 256U, y += b.trailer.exps[i + 1] * 256U, got += cell.exps[i + 1] * 256U;
      ASSERT_EQ(got, std::max(x, y)) << "exponent at " << i;
    }
  }
}

TEST(RingSumTest, who_has_no_data_adds_nothing_with_or_without_payload) {
  std::mt19937_64 random(3);
  const Contribution data = Random(random, MLNET_OP_MAX64, MLNET_WIRE_KEYS, 16);
  Contribution none = Random(random, MLNET_OP_MAX64, MLNET_WIRE_KEYS, 16);  // padding that would show
  none.header.flags = MLNET_F_NO_DATA;
  none.trailer.weight = 0;
  std::fill_n(none.trailer.exps, MLNET_EXPS_BYTES, uint8_t{0});
  Contribution header_only = none;
  header_only.header.flags |= MLNET_F_NO_PAYLOAD;
  for (const auto& order : {std::vector{data, none, header_only}, std::vector{none, header_only, data}}) {
    RingSum sum = order[0].Sum();
    sum.Add(order[1].Sum());
    sum.Add(order[2].Sum());
    const mlnet_cell cell = CellOf(sum);
    EXPECT_EQ(cell.weight, 1);
    for (size_t i = 0; i < 16; ++i) ASSERT_EQ(cell.w[i], data.words[i]);
  }
}

TEST(RingSumTest, where_nobody_has_data_the_result_is_zero_and_full_length) {
  std::mt19937_64 random(4);
  Contribution none = Random(random, MLNET_OP_ADD64, MLNET_WIRE_INT64, 32);
  none.header.flags = MLNET_F_NO_DATA | MLNET_F_NO_PAYLOAD;
  none.trailer.weight = 0;
  RingSum sum = none.Sum();
  sum.Add(none.Sum());
  std::vector<std::byte> bytes(wire::kPacketBytesMax);
  EXPECT_EQ(sum.Write(MLNET_T_CONTRIB, bytes), wire::kOverheadBytes);
  bytes.resize(sum.Write(MLNET_T_RESULT, bytes));
  wire::View view;
  ASSERT_TRUE(wire::Parse(bytes, view));
  EXPECT_TRUE(wire::Verify(view));
  EXPECT_EQ(view.payload.size(), 32U * 8);
  EXPECT_TRUE(std::all_of(view.payload.begin(), view.payload.end(), [](std::byte b) { return b == std::byte{0}; }));
  const mlnet_cell cell = CellOf(sum);
  EXPECT_EQ(std::count(cell.w, cell.w + 32, 0), 32);
}

TEST(RingSumTest, a_result_from_an_inbox_is_the_same_after_a_hop) {
  std::mt19937_64 random(5);
  const mlnet_cell cell = CellOf(Random(random, MLNET_OP_ADD32, MLNET_WIRE_INT32, 176).Sum());
  mlnet_hdr header{};
  header.job = 3;
  wire::SetSeq(header, 0x123456789abcULL);
  std::vector<std::byte> bytes(wire::kPacketBytesMax);
  bytes.resize(RingSum(header, cell).Write(MLNET_T_RESULT, bytes));
  wire::View view;
  ASSERT_TRUE(wire::Parse(bytes, view));
  ASSERT_TRUE(wire::Verify(view));
  const RingSum hopped(view);
  EXPECT_EQ(hopped.seq(), 0x123456789abcULL);
  const mlnet_cell after = CellOf(hopped);
  EXPECT_EQ(std::memcmp(&cell, &after, sizeof(cell)), 0);
}

}  // namespace
}  // namespace mlnet::worker
