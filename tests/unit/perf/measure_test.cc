// SPDX-License-Identifier: Apache-2.0
// The measurement with ranks as threads and a backend that sums in memory, and that can be told to err.
#include "mlnet-perf/measure.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <functional>
#include <thread>

#include "mlnet-perf/shared_area.h"

namespace mlnet::perf {
namespace {

/// What the ranks of one fake job share.
struct World {
  explicit World(int size) : buffers(static_cast<size_t>(size)), sync(size) {}
  std::vector<uint32_t*> buffers;
  std::barrier<> sync;
};

class FakeBackend final : public Backend {
 public:
  /// Applied to this rank's result after every collective; the number of the collective counts from 0.
  using Damage = std::function<void(uint32_t* result, size_t count, int collective)>;

  FakeBackend(World& world, int rank, Damage damage)
      : world_(world), rank_(rank), damage_(std::move(damage)) {}
  Promise promise() const override { return Promise::kBlock; }
  Result<void> Prepare(void* buffer, size_t count, DataType) override {
    buffer_ = static_cast<uint32_t*>(buffer);
    count_ = count;
    return {};
  }
  Result<void> AllReduce(size_t) override {
    world_.buffers[static_cast<size_t>(rank_)] = buffer_;
    world_.sync.arrive_and_wait();
    std::vector<uint32_t> sum(count_, 0);
    for (const uint32_t* buffer : world_.buffers) {
      for (size_t i = 0; i < count_; ++i) sum[i] += buffer[i];
    }
    world_.sync.arrive_and_wait();
    std::copy(sum.begin(), sum.end(), buffer_);
    if (damage_) damage_(buffer_, count_, collective_);
    ++collective_;
    return {};
  }
  Counters ReadCounters() override { return {static_cast<uint64_t>(collective_), 0, 0}; }

 private:
  World& world_;
  const int rank_;
  const Damage damage_;
  uint32_t* buffer_ = nullptr;
  size_t count_ = 0;
  int collective_ = 0;
};

class MeasureTest : public testing::Test {
 protected:
  static constexpr int kRanks = 3;
  MeasureTest() {
    char folder[] = "/tmp/mlnet-measure-XXXXXX";
    spec_.dir = ::mkdtemp(folder);
    spec_.world_size = kRanks;
    spec_.dtype = DataType::kInt32;
    spec_.counts = {1, 353, SharedArea::kPieceBytes / 4 + 5};
    spec_.iterations = 4;
    spec_.warmup = 1;
  }
  ~MeasureTest() override { std::filesystem::remove_all(spec_.dir); }

  /// Rows of all ranks; `damage` is rank 1's.
  std::vector<std::vector<RankRow>> Run(FakeBackend::Damage damage) {
    std::filesystem::remove(spec_.SharedFile());
    EXPECT_TRUE(SharedArea::Create(spec_.SharedFile(), kRanks));
    auto area = SharedArea::Open(spec_.SharedFile(), kRanks);
    checkpoints_ = 0;
    std::jthread answering([&](std::stop_token stop) {
      while (!stop.stop_requested()) {
        if (!area->IsAsked()) {
          std::this_thread::yield();
          continue;
        }
        ++checkpoints_;
        area->Answer();
      }
    });
    World world(kRanks);
    std::vector<std::vector<RankRow>> rows(kRanks);
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
          FakeBackend backend(world, rank, rank == 1 ? damage : nullptr);
          auto result = Measure(spec_, rank, backend);
          if (result) rows[static_cast<size_t>(rank)] = std::move(*result);
        });
      }
    }
    return rows;
  }
  static uint64_t Wrong(const std::vector<std::vector<RankRow>>& rows, size_t index) {
    uint64_t wrong = 0;
    for (const auto& of_rank : rows) wrong += of_rank.at(index).wrong;
    return wrong;
  }

  Spec spec_;
  std::atomic<int> checkpoints_ = 0;
};

TEST_F(MeasureTest, RightResultsGiveNoWrongElementAndFullCoverage) {
  const auto rows = Run(nullptr);
  for (size_t i = 0; i < spec_.counts.size(); ++i) {
    EXPECT_EQ(Wrong(rows, i), 0u);
    uint64_t checked = 0;
    for (const auto& of_rank : rows) {
      EXPECT_EQ(of_rank.at(i).times_ns.size(), 4u);
      EXPECT_EQ(of_rank.at(i).summed_in_kernel, 5u);
      checked += of_rank.at(i).checked;
    }
    EXPECT_EQ(checked, spec_.counts[i]);
  }
}

TEST_F(MeasureTest, ProcessorTimeIsThatOfTheTimedCollectivesAlone) {
  spec_.counts = {1, 200'000};
  spec_.iterations = 3;
  spec_.warmup = 5;
  const auto rows = Run([](uint32_t* result, size_t, int collective) {
    // Rank 1 spins in the warm-up of both rows, and in one timed collective of the second.
    const bool spins = collective < 5 || (collective >= 8 && collective < 13) || collective == 14;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(spins ? 40 : 0);
    while (std::chrono::steady_clock::now() < end) *result ^= 0;
  });
  // The ranks are threads of one process here, so each sees the others' time, too.
  EXPECT_LT(rows[1][0].cpu.user_ns + rows[1][0].cpu.system_ns, 30'000'000u);
  EXPECT_GT(rows[1][1].cpu.user_ns + rows[1][1].cpu.system_ns, 10'000'000u);
  EXPECT_GT(rows[1][0].memory_bytes, 0u);
}

TEST_F(MeasureTest, AsksForCountersBeforeAndAfterTheTimedIterationsOfEachRow) {
  std::vector<int> seen;  // by rank 1, which runs 5 collectives a row
  Run([&](uint32_t*, size_t, int) { seen.push_back(checkpoints_); });
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 1, 1, 1, 2, 3, 3, 3, 3, 4, 5, 5, 5, 5}));
  EXPECT_EQ(checkpoints_, 6);
}

TEST_F(MeasureTest, FindsOneElementThatDiffersOnOneRankWhereverItIs) {
  spec_.check_all = true;
  spec_.counts = {353};
  for (size_t at : {0, 32, 200, 352}) {
    // Collective 0 is the warm-up.
    const auto rows = Run([at](uint32_t* result, size_t, int collective) {
      if (collective == 2) result[at] ^= 0x80000000;
    });
    EXPECT_GE(Wrong(rows, 0), 1u) << at;
    EXPECT_LE(Wrong(rows, 0), 2u) << at;  // as out of bound, and as different
  }
}

TEST_F(MeasureTest, WithoutCheckAllOnlyTheLastCollectiveOfARowIsChecked) {
  spec_.counts = {8};
  EXPECT_EQ(Wrong(Run([](uint32_t* result, size_t, int collective) { result[0] += collective == 2; }), 0),
            0u);
  EXPECT_GE(Wrong(Run([](uint32_t* result, size_t, int collective) { result[0] += collective == 4; }), 0),
            1u);
}

TEST_F(MeasureTest, AStaleResultIsFound) {
  spec_.check_all = true;
  spec_.counts = {353};
  std::vector<uint32_t> before;
  const auto rows = Run([&before](uint32_t* result, size_t count, int collective) {
    if (collective == 2) before.assign(result, result + count);
    if (collective == 3) std::copy(before.begin(), before.end(), result);
  });
  EXPECT_GT(Wrong(rows, 0), 300u);
}

TEST(Spec, SurvivesItsFile) {
  char folder[] = "/tmp/mlnet-spec-XXXXXX";
  Spec spec;
  spec.dir = ::mkdtemp(folder);
  spec.world_size = 6;
  spec.ranks_per_host = 2;
  spec.dtype = DataType::kBFloat16;
  spec.op = ReduceOp::kMax;
  spec.wire = WireType::kInt8;
  spec.keeps_small = false;
  spec.small_bytes = 16384;
  spec.travels_as_half = true;
  spec.counts = {1, 16777216};
  spec.check_all = true;
  spec.seed = 18446744073709551615ULL;
  spec.job = "perf-1";
  ASSERT_TRUE(SaveSpec(spec));
  const auto loaded = LoadSpec(spec.File());
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->world_size, 6);
  EXPECT_EQ(loaded->ranks_per_host, 2);
  EXPECT_EQ(loaded->dtype, DataType::kBFloat16);
  EXPECT_EQ(loaded->op, ReduceOp::kMax);
  EXPECT_EQ(loaded->wire, WireType::kInt8);
  EXPECT_FALSE(loaded->keeps_small);
  EXPECT_EQ(loaded->small_bytes, 16384u);
  EXPECT_TRUE(loaded->travels_as_half);
  EXPECT_EQ(loaded->counts, spec.counts);
  EXPECT_TRUE(loaded->check_all);
  EXPECT_EQ(loaded->seed, spec.seed);
  EXPECT_EQ(loaded->job, "perf-1");
  std::filesystem::remove_all(spec.dir);
}

TEST(RankRows, SurviveTheirFile) {
  char folder[] = "/tmp/mlnet-rows-XXXXXX";
  const std::string file = std::string(::mkdtemp(folder)) + "/rank.json";
  ASSERT_TRUE(SaveRows(file, std::vector<RankRow>{{8, "ring", {10, 40}, 1, 4, 5, 0, 2, {11, 12, 13, 14}, 99}}));
  const auto rows = LoadRows(file);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->at(0).variant, "ring");
  EXPECT_EQ(rows->at(0).retransmits, 2u);
  EXPECT_EQ(rows->at(0).cpu, (CpuTime{11, 12, 13, 14}));
  EXPECT_EQ(rows->at(0).memory_bytes, 99u);
  std::filesystem::remove_all(folder);
}

TEST(RankRows, AnErrorComesBackAsItWas) {
  char folder[] = "/tmp/mlnet-rows-XXXXXX";
  const std::string file = std::string(::mkdtemp(folder)) + "/rank.json";
  ASSERT_TRUE(SaveRows(file, Err(ErrorCode::kTimeout, "rank 2 is missing", "look at w3")));
  const auto rows = LoadRows(file);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(rows.error().message, "rank 2 is missing");
  EXPECT_EQ(rows.error().hint, "look at w3");
  EXPECT_EQ(LoadRows(file + ".none").error().code, ErrorCode::kUnavailable);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace mlnet::perf
