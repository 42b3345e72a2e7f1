// SPDX-License-Identifier: Apache-2.0
#include "lab/shrink_ranks.h"

#include <bit>
#include <chrono>
#include <numeric>
#include <random>

#include "mlnet/communicator.h"

namespace mlnet::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kCount = 8'000;
constexpr int kCallsAfter = 20;

// What `id`, the rank as it was numbered first, puts into call i.
std::vector<int32_t> Input(int id, int i) {
  std::minstd_rand random(static_cast<unsigned>(id * 1'000'003 + i + 1));
  std::vector<int32_t> values(kCount);
  for (int32_t& x : values) x = static_cast<int32_t>(random() % 8192) - 4096;
  return values;
}

bool IsFloat(int i) { return i % 2 == 1; }

// Sixteenths of up to four such numbers: exact in float32, however they are added.
uint32_t BitsOf(int i, int32_t value) {
  return IsFloat(i) ? std::bit_cast<uint32_t>(static_cast<float>(value) / 16) : static_cast<uint32_t>(value);
}

std::vector<uint32_t> Expected(const std::vector<int>& ids, int i) {
  std::vector<int32_t> sum(kCount);
  for (const int id : ids) {
    const auto in = Input(id, i);
    for (size_t k = 0; k < kCount; ++k) sum[k] += in[k];
  }
  std::vector<uint32_t> bits(kCount);
  for (size_t k = 0; k < kCount; ++k) bits[k] = BitsOf(i, sum[k]);
  return bits;
}

std::string Text(const std::vector<int>& ids) {
  std::string text;
  for (const int id : ids) text += " " + std::to_string(id);
  return text;
}

// Call i of a communicator of `ids`; true: it came out right.
Result<bool> Sum(Communicator& comm, const std::vector<int>& ids, int id, int i) {
  std::vector<uint32_t> bits(kCount);
  const auto in = Input(id, i);
  for (size_t k = 0; k < kCount; ++k) bits[k] = BitsOf(i, in[k]);
  auto done = comm.AllReduce(bits.data(), bits.data(), kCount, IsFloat(i) ? DataType::kFloat32 : DataType::kInt32)->Wait();
  if (!done) return tl::make_unexpected(done.error());
  return bits == Expected(ids, i);
}

// The first call that some rank has not returned.
Result<int> Agree(Communicator& comm, int i) {
  int64_t least = i;
  auto done = comm.AllReduce(&least, &least, 1, DataType::kInt64, ReduceOp::kMin)->Wait();
  if (!done) return tl::make_unexpected(done.error());
  return static_cast<int>(least);
}

}  // namespace

void ShrinkRanks::Start(const ShrinkJob& job) {
  job_ = job;
  StartOn(job.name, job.hosts, {"error", "asking", "go", "shrunk"});
}

void ShrinkRanks::Rank(int id) const {
  JoinOptions options;
  options.job = job_.name;
  options.rank = id;
  options.world_size = static_cast<int>(job_.hosts.size());
  options.socket = lab_.Socket(job_.hosts[static_cast<size_t>(id)]);
  auto joined = Communicator::Join(options);
  if (!joined) return Write(id, "outcome", joined.error().ToString());
  std::unique_ptr<Communicator> comm = std::move(*joined);
  std::vector<int> ids(job_.hosts.size());
  std::iota(ids.begin(), ids.end(), 0);
  bool agrees = true;
  for (int i = 0, calls = 0; ids.size() > job_.last_size || calls < kCallsAfter;) {
    const auto least = agrees ? Result<int>(i) : Agree(*comm, i);
    const auto is_right = least ? Sum(*comm, ids, id, *least) : tl::make_unexpected(least.error());
    if (is_right && !*is_right) return Write(id, "outcome", "wrong sum in call " + std::to_string(*least));
    if (is_right) {
      agrees = true;
      i = *least + 1;
      ++calls;
      Write(id, "done", std::to_string(i));
      continue;
    }
    Write(id, "error", is_right.error().ToString());
    if (job_.silent.contains(id)) WaitUntil([&] { return !Read(static_cast<size_t>(id), "go").empty(); }, std::chrono::seconds(60));
    Write(id, "asking", "yes");
    const auto begin = steady_clock::now();
    auto next = comm->Shrink({milliseconds(job_.wait_ms), milliseconds(30'000)});
    if (!next) return Write(id, "outcome", next.error().ToString());
    comm = std::move(*next);
    agrees = false;
    calls = 0;
    std::vector<int> left;
    for (const int former : comm->shrunk().former_ranks) left.push_back(ids[static_cast<size_t>(former)]);
    ids = left;
    const auto took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin).count();
    std::printf("rank %d: goes on as %d of %d after %lld ms: %s\n", id, comm->rank(), comm->world_size(), static_cast<long long>(took),
                comm->shrunk().why.c_str());
    std::fflush(stdout);
    const bool fits = comm->world_size() == static_cast<int>(ids.size()) && ids[static_cast<size_t>(comm->rank())] == id;
    if (!fits) return Write(id, "outcome", "wrong ranks:" + Text(ids));
    Write(id, "shrunk", Text(comm->shrunk().lost) + ": " + comm->shrunk().why);
  }
  comm.reset();
  Write(id, "outcome", "done" + Text(ids));
}

bool ShrinkRanks::WaitFor(size_t rank, const std::string& what) const {
  return WaitUntil([&] { return !Read(rank, what).empty(); }, std::chrono::seconds(30));
}

}  // namespace mlnet::test
