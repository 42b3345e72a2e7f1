// SPDX-License-Identifier: Apache-2.0
#include "lab/outage_ranks.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <sstream>

#include "mlnet/communicator.h"

namespace mlnet::test {
namespace {

using std::chrono::steady_clock;

struct Call {
  DataType dtype;
  ReduceOp op;
  WireType wire;
  size_t count;
};

// The same on all ranks.
Call CallNumber(int i, size_t count_most) {
  constexpr Call kKinds[] = {{DataType::kFloat32, ReduceOp::kSum, WireType::kInt32, 0}, {DataType::kInt32, ReduceOp::kSum, WireType::kInt32, 0},
                             {DataType::kFloat32, ReduceOp::kSum, WireType::kInt16, 0}, {DataType::kFloat32, ReduceOp::kMax, WireType::kInt32, 0}};
  Call call = kKinds[i % 4];
  call.count = i % 8 < 4 ? count_most : 1 + static_cast<size_t>(i) * 7919 % count_most;
  return call;
}

std::vector<uint32_t> Input(const Call& call, int rank, int i) {
  std::minstd_rand random(static_cast<unsigned>(rank * 1'000'003 + i + 1));
  std::vector<uint32_t> bits(call.count);
  for (uint32_t& x : bits) {
    x = static_cast<uint32_t>(random());
    if (call.dtype == DataType::kFloat32) x = (x & 0x807fffffU) | (120U + x % 8) << 23;
  }
  return bits;
}

// What all integers must be, added here.
bool IsRightSum(const Call& call, const std::vector<uint32_t>& got, int ranks, int i) {
  std::vector<uint32_t> sum(call.count);
  for (int r = 0; r < ranks; ++r) {
    const auto in = Input(call, r, i);
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += in[k];
  }
  return sum == got;
}

uint64_t Digest(const std::vector<uint32_t>& words) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const uint32_t word : words) hash = (hash ^ word) * 0x100000001b3ULL;
  return hash;
}

}  // namespace

void OutageRanks::Start(const OutageJob& job) {
  job_ = job;
  StartOn(job.name, job.hosts, {"times", "go"});
}

void OutageRanks::Release() {
  for (size_t r = 0; r < num_ranks(); ++r) Write(static_cast<int>(r), "go", "on");
}

void OutageRanks::Rank(int rank) const {
  JoinOptions options;
  options.job = job_.name;
  options.rank = rank;
  options.world_size = static_cast<int>(job_.hosts.size());
  options.socket = lab_.Socket(job_.hosts[static_cast<size_t>(rank)]);
  options.timeout = std::chrono::milliseconds(job_.timeout_ms);
  auto comm = Communicator::Join(options);
  if (!comm) return Write(rank, "outcome", comm.error().ToString());
  std::string digests;
  std::vector<int64_t> all_us, large_us;
  for (int i = 0; i < job_.calls; ++i) {
    if (i == job_.calls - job_.held) WaitUntil([&] { return !Read(static_cast<size_t>(rank), "go").empty(); }, std::chrono::seconds(60));
    const Call call = CallNumber(i, job_.count_most);
    std::vector<uint32_t> data = Input(call, rank, i);
    CallOptions how;
    how.wire = call.wire;
    const auto begin = steady_clock::now();
    const auto done = (*comm)->AllReduce(data.data(), data.data(), data.size(), call.dtype, call.op, how)->Wait();
    if (!done) return Write(rank, "outcome", done.error().ToString());
    all_us.push_back(std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - begin).count());
    if (i >= job_.calls / 2 && call.count == job_.count_most) large_us.push_back(all_us.back());
    if (call.dtype == DataType::kInt32 && rank == 0 && !IsRightSum(call, data, options.world_size, i)) return Write(rank, "outcome", "wrong sum");
    digests += std::to_string(Digest(data)) + "\n";
    Write(rank, "done", std::to_string(i + 1));
  }
  std::sort(large_us.begin(), large_us.end());
  Write(rank, "times", std::to_string(*std::max_element(all_us.begin(), all_us.end()) / 1000) + " " + std::to_string(large_us[large_us.size() / 2]));
  Write(rank, "outcome", digests);
}

std::vector<std::string> OutageRanks::Outcomes() const {
  std::vector<std::string> outcomes;
  for (size_t r = 0; r < num_ranks(); ++r) outcomes.push_back(Outcome(r));
  return outcomes;
}

OutageRanks::Times OutageRanks::TimesOf(size_t rank) const {
  std::istringstream text(Read(rank, "times"));
  Times times;
  text >> times.slowest_ms >> times.median_us;
  return times;
}

}  // namespace mlnet::test
