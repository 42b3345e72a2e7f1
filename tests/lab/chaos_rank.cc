// SPDX-License-Identifier: Apache-2.0
#include "lab/chaos_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/clock.h"
#include "mlnet/communicator.h"

namespace mlnet::test {
namespace {

// The same on all ranks: what rank r gives as element i of call k can be computed by everybody.
int64_t Element(uint64_t seed, uint64_t call, int rank, size_t i) {
  uint64_t x = seed + call * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(rank) * 0xbf58476d1ce4e5b9 + i * 0x94d049bb133111eb;
  x = (x ^ (x >> 31)) * 0xd6e8feb86659fd93;
  return static_cast<int64_t>(x >> 44) - (1 << 19);
}

/// Number `number` of the job on all ranks: one type and operation, one size.
class Call {
 public:
  Call(const ChaosJob& job, uint64_t number) : job_(job), number_(number) {
    std::mt19937_64 random(job.seed + number);
    count_ = 1 + random() % (number % 8 == 0 ? job.count_max : job.count_max / 20);
    is_float_ = random() % 3 == 0;
    op_ = !is_float_ && random() % 2 == 0 ? ReduceOp::kMax : ReduceOp::kSum;
  }
  size_t count() const { return count_; }

  /// Of the call itself.
  Result<void> Run(Communicator& comm) {
    ints_.resize(is_float_ ? 0 : count_);
    floats_.resize(is_float_ ? count_ : 0);
    for (size_t i = 0; i < count_; ++i) {
      const int64_t mine = Element(job_.seed, number_, comm.rank(), i);
      if (is_float_) floats_[i] = static_cast<float>(mine);
      else ints_[i] = static_cast<int32_t>(mine);
    }
    if (is_float_) return comm.AllReduce(floats_.data(), floats_.data(), count_, DataType::kFloat32, op_)->Wait();
    return comm.AllReduce(ints_.data(), ints_.data(), count_, DataType::kInt32, op_)->Wait();
  }

  /// Integers exactly, floats within the bound that communicator.h promises for any block: M is below 2^19.
  /// Empty where all is right, else what is wrong first.
  std::string Wrong() const {
    const auto ranks = static_cast<int>(job_.hosts.size());
    std::string which;  // the first ones
    size_t num_wrong = 0;
    const double bound = ranks * std::ldexp(1.0, 19 + 1 - 32 + static_cast<int>(std::ceil(std::log2(ranks))));
    for (size_t i = 0; i < count_; ++i) {
      int64_t sum = 0, largest = INT64_MIN;
      for (int rank = 0; rank < ranks; ++rank) {
        sum += Element(job_.seed, number_, rank, i);
        largest = std::max(largest, Element(job_.seed, number_, rank, i));
      }
      const int64_t expected = op_ == ReduceOp::kMax ? largest : sum;
      // One rounding to float32 on top of the bound.
      const double error_max = bound + std::abs(static_cast<double>(expected)) * 0x1p-24;
      const double got = is_float_ ? static_cast<double>(floats_[i]) : ints_[i];
      if (std::abs(got - static_cast<double>(expected)) <= (is_float_ ? error_max : 0)) continue;
      if (++num_wrong <= 2) which += fmt::format(", element {} is {}, not {}", i, got, expected);
    }
    if (num_wrong == 0) return "";
    return fmt::format("call {}, {} {} of {} elements: {} wrong{}", number_, is_float_ ? "float32" : "int32", op_ == ReduceOp::kMax ? "max" : "sum",
                       count_, num_wrong, which);
  }

 private:
  const ChaosJob& job_;
  uint64_t number_;
  size_t count_ = 0;
  bool is_float_ = false;
  ReduceOp op_ = ReduceOp::kSum;
  std::vector<int32_t> ints_;
  std::vector<float> floats_;
};

// The ranks hear of the end at different moments: they go on until all have.
Result<bool> AllShouldEnd(Communicator& comm, bool should_end) {
  int32_t votes = should_end ? 1 : 0;
  if (auto ok = comm.AllReduce(&votes, &votes, 1, DataType::kInt32)->Wait(); !ok) return tl::make_unexpected(ok.error());
  return votes == comm.world_size();
}

Result<void> Collectives(const ChaosJob& job, Communicator& comm, const std::atomic<uint32_t>& should_end, ChaosReport& report) {
  for (uint64_t number = 0;; ++number) {
    Call call(job, number);
    if (auto ok = call.Run(comm); !ok) return ok;
    const std::string wrong = call.Wrong();
    report.is_wrong = !wrong.empty();
    if (report.is_wrong) return Err(ErrorCode::kSystem, wrong);
    ++report.calls;
    report.elements += call.count();
    auto is_end = AllShouldEnd(comm, should_end.load() != 0);
    if (!is_end) return tl::make_unexpected(is_end.error());
    if (*is_end) return {};
  }
}

}  // namespace

void RunChaosRank(const ChaosJob& job, int rank, const std::string& socket, const std::atomic<uint32_t>& should_end, ChaosReport& report) {
  JoinOptions options;
  options.job = job.name;
  options.rank = rank;
  options.world_size = static_cast<int>(job.hosts.size());
  options.socket = socket;
  options.mac = job.mac;
  options.timeout = std::chrono::milliseconds(job.timeout_ms);
  Result<void> ended;
  {
    auto comm = Communicator::Join(options);
    ended = comm ? Collectives(job, **comm, should_end, report) : tl::make_unexpected(comm.error());
  }
  if (!ended) std::strncpy(report.error, ended.error().ToString().c_str(), sizeof(report.error) - 1);
  report.over_ns = MonotonicClock().NowNs();
  report.is_over = 1;
  ::_exit(0);
}

}  // namespace mlnet::test
