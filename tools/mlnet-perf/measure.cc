// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "mlnet-perf/inputs.h"
#include "mlnet-perf/shared_area.h"
#include "mlnet-perf/usage.h"

namespace mlnet::perf {
namespace {

constexpr int kVariantTries = 2;

class Row {
 public:
  Row(const Spec& spec, int rank, Backend& backend, SharedArea& area, size_t index)
      : spec_(spec),
        rank_(rank),
        backend_(backend),
        area_(area),
        index_(index),
        type_(TypeOf(spec.dtype)),
        count_(spec.counts[index]),
        input_(count_ * type_.bytes),
        buffer_(count_ * type_.bytes) {
    row_.count = count_;
  }

  Result<RankRow> Run() {
    ResetPeakMemory();
    const Counters before = backend_.ReadCounters();
    if (auto ok = backend_.Prepare(buffer_.data(), count_, spec_.dtype); !ok)
      return tl::make_unexpected(ok.error());
    if (auto ok = PickVariant(); !ok) return tl::make_unexpected(ok.error());
    for (int i = 0; i < spec_.warmup; ++i) {
      if (auto time = Iterate(false); !time) return tl::make_unexpected(time.error());
    }
    row_.cpu = {};
    area_.Checkpoint(rank_);
    for (int i = 0; i < spec_.iterations; ++i) {
      const auto time = Iterate(i + 1 == spec_.iterations);
      if (!time) return tl::make_unexpected(time.error());
      row_.times_ns.push_back(*time);
    }
    const Counters after = backend_.ReadCounters();
    row_.summed_in_kernel = after.summed_in_kernel - before.summed_in_kernel;
    row_.summed_in_user_space = after.summed_in_user_space - before.summed_in_user_space;
    row_.retransmits = after.retransmits - before.retransmits;
    return row_;
  }

 private:
  /// Data that no earlier collective of this turn had, where it is checked: a stale result cannot pass.
  void Refill(bool fresh) {
    const uint64_t seed = MixSeed(spec_.seed, index_ + 1, fresh ? ++collectives_ : 0);
    if (seed != seed_) {
      seed_ = seed;
      FillInputs(type_, seed_, rank_, input_.data(), count_);
    }
    std::copy(input_.begin(), input_.end(), buffer_.begin());
  }

  Result<uint64_t> Time(size_t variant) {
    area_.Barrier();  // nobody makes inputs any more
    const CpuTime before = ReadCpuTime(rank_ == 0);
    area_.Barrier();
    const auto start = std::chrono::steady_clock::now();
    if (auto ok = backend_.AllReduce(variant); !ok) return tl::make_unexpected(ok.error());
    const auto end = std::chrono::steady_clock::now();
    row_.cpu += ReadCpuTime(rank_ == 0) - before;
    return static_cast<uint64_t>(std::chrono::nanoseconds(end - start).count());
  }

  Result<uint64_t> Iterate(bool is_last) {
    const bool check = spec_.check_all || is_last;
    Refill(check);
    auto time = Time(variant_);
    if (time && is_last) EndTimed();
    if (time && check) Check();
    return time;
  }

  void EndTimed() {
    area_.Checkpoint(rank_);
    const uint64_t peak = PeakMemoryBytes(), tensors = input_.size() + buffer_.size();
    row_.memory_bytes = peak > tensors ? peak - tensors : 0;
  }

  /// The one that was asked for. Else all ranks agree: the variant whose slowest rank was fastest in its best try.
  Result<void> PickVariant() {
    const auto variants = backend_.Variants();
    const auto wanted = std::find(variants.begin(), variants.end(), spec_.algorithm);
    if (variants.size() > 1 && wanted != variants.end()) {
      variant_ = static_cast<size_t>(wanted - variants.begin());
      row_.variant = *wanted;
      return {};
    }
    for (size_t v = 0; v < variants.size() && variants.size() > 1; ++v) {
      uint64_t best = UINT64_MAX;
      for (int attempt = 0; attempt < kVariantTries; ++attempt) {
        Refill(false);
        const auto time = Time(v);
        if (!time) return tl::make_unexpected(time.error());
        best = std::min(best, *time);
      }
      area_.VariantNs(rank_, v) = best;
    }
    area_.Barrier();
    uint64_t fastest = UINT64_MAX;
    for (size_t v = 0; v < variants.size() && variants.size() > 1; ++v) {
      uint64_t slowest_rank = 0;
      for (int r = 0; r < spec_.world_size; ++r) slowest_rank = std::max(slowest_rank, area_.VariantNs(r, v));
      if (slowest_rank < fastest) {
        fastest = slowest_rank;
        variant_ = v;
      }
    }
    area_.Barrier();
    row_.variant = variants[variant_];
    return {};
  }

  /// Every rank computes a share of the true sums, and compares all of its bits with rank 0's.
  void Check() {
    const size_t shares = (count_ + kShareElements - 1) / kShareElements;
    const auto world = static_cast<size_t>(spec_.world_size), self = static_cast<size_t>(rank_);
    const size_t first = std::min(shares * self / world * kShareElements, count_);
    const size_t end = std::min(shares * (self + 1) / world * kShareElements, count_);
    const Reduction reduction{spec_.dtype, spec_.op, backend_.promise(), spec_.wire, spec_.world_size, backend_.block_bytes()};
    row_.wrong += CountWrong(reduction, seed_, buffer_.data(), first, end - first);
    row_.checked += end - first;
    for (size_t at = 0; at < buffer_.size(); at += SharedArea::kPieceBytes) {
      const size_t length = std::min(SharedArea::kPieceBytes, buffer_.size() - at);
      std::memcpy(area_.Piece(rank_), buffer_.data() + at, length);
      area_.Barrier();
      row_.wrong += CountDifferent(area_.Piece(rank_), area_.Piece(0), length / type_.bytes, type_.bytes);
      area_.Barrier();
    }
  }

  const Spec& spec_;
  const int rank_;
  Backend& backend_;
  SharedArea& area_;
  const size_t index_;
  const ElementType& type_;
  const size_t count_;
  std::vector<std::byte> input_;
  std::vector<std::byte> buffer_;  // what is reduced in place
  uint64_t seed_ = 0;              // of what input_ holds
  uint64_t collectives_ = 0;
  size_t variant_ = 0;
  RankRow row_;
};

}  // namespace

Result<std::vector<RankRow>> Measure(const Spec& spec, int rank, Backend& backend) {
  auto area = SharedArea::Open(spec.SharedFile(), spec.world_size);
  if (!area) return tl::make_unexpected(area.error());
  std::vector<RankRow> rows;
  for (size_t i = 0; i < spec.counts.size(); ++i) {
    auto row = Row(spec, rank, backend, *area, i).Run();
    if (!row) return tl::make_unexpected(row.error());
    rows.push_back(std::move(*row));
  }
  area->Barrier();  // nobody leaves while another still needs its answers
  return rows;
}

int LeaveRows(const Spec& spec, int rank, const Result<std::vector<RankRow>>& rows) {
  const Result<void> left = rows ? SaveRows(spec.ResultFile(rank), rows) : Result<void>(tl::make_unexpected(rows.error()));
  if (left) return 0;
  fmt::print(stderr, "rank {}: {}\n", rank, left.error().ToString());
  // Best effort: when the file cannot be written either, stderr has said it.
  (void)SaveRows(spec.ResultFile(rank), tl::make_unexpected(left.error()));
  return 1;
}

int RankMain(int argc, char** argv, const char* starter, Result<std::vector<RankRow>> (*run)(const Spec& spec, int rank)) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} SPEC RANK; started by {}\n", argv[0], starter);
    return 2;
  }
  const auto spec = LoadSpec(argv[1]);
  if (!spec) {
    fmt::print(stderr, "{}: {}\n", argv[0], spec.error().ToString());
    return 1;
  }
  const int rank = std::atoi(argv[2]);
  return LeaveRows(*spec, rank, run(*spec, rank));
}

uint64_t TcpRetransmits(const Spec& spec, int rank) {
  if (rank % spec.ranks_per_host != 0) return 0;
  std::ifstream file("/proc/self/net/snmp");
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("Tcp:")) continue;
    std::istringstream fields(line);
    std::vector<std::string> words{std::istream_iterator<std::string>(fields), {}};
    const auto at = std::find(names.begin(), names.end(), "RetransSegs");
    if (at != names.end()) return std::stoull(words[static_cast<size_t>(at - names.begin())]);
    names = std::move(words);
  }
  return 0;
}

}  // namespace mlnet::perf
