// SPDX-License-Identifier: Apache-2.0
// A job without a network: the traffics of all ranks, and an adder that follows the definition of each
// operation lane by lane. Results come back in a random order within one pool.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "traffic/partition.h"
#include "traffic/traffic.h"

namespace mlnet::worker {

struct LoopbackShape {
  uint32_t blocks = MLNET_BLOCKS_MTU1500;
  uint32_t slots = 8;
  size_t small_bytes = 0;
  std::vector<uint32_t> weights{1};  // of the trees
  uint64_t seed = 1;
};

class Loopback {
 public:
  explicit Loopback(const LoopbackShape& shape) : shape_(shape), random_(shape.seed) {}

  /// Runs the collective that rank r calls as specs[r]. Gives the packets of all streams.
  uint64_t Run(const std::vector<CollectiveSpec>& specs) {
    counters_.resize(specs.size());
    packets_ = payload_bytes_ = 0;
    std::vector<Traffics> by_part;
    for (size_t r = 0; r < specs.size(); ++r) {
      counters_[r] = std::make_unique<Counters>();
      CollectiveSpec spec = specs[r];
      const int ranks = static_cast<int>(specs.size());
      spec.is_in_rank_order = IsSmallSum(spec, ranks, shape_.small_bytes);
      const auto parts = Partition(spec, shape_.weights, shape_.blocks, shape_.seed);
      by_part.resize(parts.size());
      for (size_t p = 0; p < parts.size(); ++p) {
        const JobShape job{static_cast<int>(r), ranks, shape_.blocks, shape_.slots, r * 77 + 1};
        by_part[p].push_back(MakeTraffic(parts[p].spec, job, *counters_[r]));
      }
    }
    for (Traffics& traffics : by_part) RunTraffics(traffics);
    return packets_;
  }
  const Counters& counters(size_t rank) const { return *counters_[rank]; }
  uint64_t payload_bytes() const { return payload_bytes_; }  // of one rank

 private:
  using Traffics = std::vector<std::unique_ptr<Traffic>>;

  void RunTraffics(Traffics& traffics) {
    RunPackets(traffics);
    std::vector<Traffics> repairs;
    for (size_t r = 0; r < traffics.size(); ++r) {
      if (!traffics[r]->NeedsRepair()) continue;
      auto own = traffics[r]->Repairs();
      repairs.resize(std::max(repairs.size(), own.size()));
      for (size_t i = 0; i < own.size(); ++i) repairs[i].push_back(std::move(own[i]));
    }
    for (Traffics& repair : repairs) {
      ASSERT_EQ(repair.size(), traffics.size()) << "ranks disagree on what to repair";
      RunTraffics(repair);
    }
    for (auto& traffic : traffics) traffic->Finish();
  }

  // As a lane does: a packet is sent when it is ready, at most one pool ahead of what was taken.
  void RunPackets(Traffics& traffics) {
    const uint64_t packets = traffics[0]->packets();
    for (const auto& traffic : traffics) ASSERT_EQ(traffic->packets(), packets);
    packets_ += packets;
    std::vector<std::pair<uint64_t, mlnet_cell>> answers;
    uint64_t sent = 0, taken = 0;
    while (taken < packets) {
      while (sent < packets && answers.size() < shape_.slots && traffics[0]->IsReady(sent) &&
             IsSlotFree(answers, sent)) {
        answers.emplace_back(sent, Combine(traffics, sent));
        ++sent;
      }
      ASSERT_FALSE(answers.empty()) << "packet " << sent << " never gets ready";
      const size_t pick = random_() % answers.size();
      for (auto& traffic : traffics) traffic->Take(answers[pick].first, answers[pick].second);
      answers.erase(answers.begin() + static_cast<std::ptrdiff_t>(pick));
      ++taken;
    }
  }
  bool IsSlotFree(const std::vector<std::pair<uint64_t, mlnet_cell>>& answers, uint64_t packet) const {
    return std::none_of(answers.begin(), answers.end(),
                        [&](const auto& a) { return a.first % shape_.slots == packet % shape_.slots; });
  }

  mlnet_cell Combine(Traffics& traffics, uint64_t packet) {
    mlnet_cell cell{};
    const Shape shape = traffics[0]->ShapeOf(packet);
    cell.words = shape.words;
    for (auto& traffic : traffics) {
      const Shape own = traffic->ShapeOf(packet);
      EXPECT_EQ(own.words, shape.words);
      EXPECT_EQ(own.op_wire, shape.op_wire);
      if (!own.has_data) continue;
      std::vector<uint64_t> words(shape.words, 0xabababababababab);
      uint8_t exps[MLNET_EXPS_BYTES] = {};
      cell.flags |= traffic->Fill(packet, false, words, exps);
      ExpectSameAgain(*traffic, packet, words);
      for (size_t i = 0; i < words.size(); ++i) cell.w[i] = Lanes(shape.op_wire >> 4, cell.w[i], words[i]);
      Merge(cell.exps, exps, (shape.op_wire & 0xf) == MLNET_WIRE_FLOAT64);
      ++cell.weight;
    }
    payload_bytes_ += shape.words * 8U;
    return cell;
  }

  // A retry is the same packet.
  static void ExpectSameAgain(Traffic& traffic, uint64_t packet, const std::vector<uint64_t>& words) {
    std::vector<uint64_t> again(words.size(), 0x1212121212121212);
    uint8_t exps[MLNET_EXPS_BYTES] = {};
    traffic.Fill(packet, true, again, exps);
    EXPECT_EQ(again, words) << "packet " << packet;
  }

  template <typename T, typename Op>
  static uint64_t Each(uint64_t a, uint64_t b, Op op) {
    T x[8 / sizeof(T)], y[8 / sizeof(T)];
    std::memcpy(x, &a, 8);
    std::memcpy(y, &b, 8);
    for (size_t i = 0; i < 8 / sizeof(T); ++i) x[i] = static_cast<T>(op(x[i], y[i]));
    std::memcpy(&a, x, 8);
    return a;
  }
  static uint64_t Lanes(int op, uint64_t a, uint64_t b) {
    const auto add = [](auto x, auto y) { return x + y; };
    const auto max = [](auto x, auto y) { return std::max(x, y); };
    switch (op) {
      case MLNET_OP_ADD64:
        return a + b;
      case MLNET_OP_ADD32:
        return Each<uint32_t>(a, b, add);
      case MLNET_OP_MAX8:
        return Each<uint8_t>(a, b, max);
      case MLNET_OP_MAX16:
        return Each<uint16_t>(a, b, max);
      case MLNET_OP_MAX32:
        return Each<uint32_t>(a, b, max);
      case MLNET_OP_MAX64:
        return std::max(a, b);
      case MLNET_OP_XOR:
        return a ^ b;
      default:
        return a | b;
    }
  }
  static void Merge(uint8_t* merged, const uint8_t* exps, bool is_16_bit) {
    for (size_t i = 0; i < MLNET_EXPS_BYTES; i += 2) {
      uint16_t a, b;
      std::memcpy(&a, merged + i, 2);
      std::memcpy(&b, exps + i, 2);
      const auto bytes = static_cast<uint16_t>(std::max(a & 0xff, b & 0xff) | std::max(a & 0xff00, b & 0xff00));
      const uint16_t larger = is_16_bit ? std::max(a, b) : bytes;
      std::memcpy(merged + i, &larger, 2);
    }
  }

  LoopbackShape shape_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Counters>> counters_;
  uint64_t packets_ = 0, payload_bytes_ = 0;
};

}  // namespace mlnet::worker
