// SPDX-License-Identifier: Apache-2.0
// A rank's calls: each becomes a spec, the session does the rest.
#include "mlnet/communicator.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "calls.h"
#include "session.h"

namespace mlnet {
namespace worker {
namespace {

Result<void> Check(const JoinOptions& options) {
  if (auto valid = CheckJoin(options); !valid) return valid;
  if (options.rank < 0 || options.rank >= options.world_size) {
    return Err(ErrorCode::kInvalidArgument, "rank " + std::to_string(options.rank) + " is not within 0.." +
                                                std::to_string(options.world_size - 1));
  }
  return {};
}

int NumClasses(const EngineConfig& config) {
  const auto& pools = config.trees.front().pools;
  return static_cast<int>(std::count_if(pools.begin(), pools.begin() + MLNET_CLASSES_MAX, [](const PoolConfig& p) { return p.is_open; }));
}

class CommunicatorImpl final : public Communicator {
 public:
  CommunicatorImpl(const JoinOptions& options, std::unique_ptr<Session> session)
      : options_(options), session_(std::move(session)) {}

  int rank() const override { return session_->config().rank; }
  int world_size() const override { return session_->config().world_size; }
  int classes() const override { return NumClasses(session_->config()); }
  size_t block_bytes() const override { return MLNET_BLOCKS_PER_PAIR(session_->config().blocks) * MLNET_BLOCK_BYTES; }

  std::shared_ptr<Work> AllReduce(const void* in, void* out, size_t count, DataType dtype, ReduceOp op,
                                  const CallOptions& options) override {
    return Reduction(options, ReductionSpec(CollectiveKind::kAllReduce, Self(), in, out, count, dtype, op, 0, options));
  }
  std::shared_ptr<Work> Reduce(const void* in, void* out, size_t count, DataType dtype, int root, ReduceOp op,
                               const CallOptions& options) override {
    return Reduction(options, ReductionSpec(CollectiveKind::kReduce, Self(), in, out, count, dtype, op, root, options));
  }
  std::shared_ptr<Work> ReduceScatter(const void* in, void* out, size_t count, DataType dtype, ReduceOp op,
                                      const CallOptions& options) override {
    const size_t total = count * static_cast<size_t>(world_size());
    return Reduction(options,
                     ReductionSpec(CollectiveKind::kReduceScatter, Self(), in, out, total, dtype, op, 0, options));
  }
  std::shared_ptr<Work> Broadcast(void* buffer, size_t bytes, int root, const CallOptions& options) override {
    return Submit(BroadcastSpec(Self(), buffer, bytes, root, options), options);
  }
  std::shared_ptr<Work> AllGather(const void* in, void* out, size_t bytes, const CallOptions& options) override {
    return Submit(AllGatherSpec(Self(), in, out, bytes, options), options);
  }
  std::shared_ptr<Work> Gather(const void* in, void* out, size_t bytes, int root,
                               const CallOptions& options) override {
    return Submit(GatherSpec(Self(), in, out, bytes, root, options), options);
  }
  std::shared_ptr<Work> Scatter(const void* in, void* out, size_t bytes, int root,
                                const CallOptions& options) override {
    return Submit(ScatterSpec(Self(), in, out, bytes, root, options), options);
  }
  std::shared_ptr<Work> Barrier(const CallOptions& options) override { return Submit(BarrierSpec(options), options); }
  std::shared_ptr<Work> Push(const void* in, size_t count, DataType dtype, const CallOptions& options) override {
    return Reduction(options, PushSpec(Self(), in, nullptr, count, dtype, options));
  }
  std::shared_ptr<Work> Pull(void* out, size_t bytes, const CallOptions& options) override {
    return Submit(PullSpec(Self(), nullptr, out, bytes, options), options);
  }
  CommStats Stats() const override { return session_->Stats(); }
  const ShrinkReport& shrunk() const override { return session_->shrunk(); }
  Result<std::unique_ptr<Communicator>> Shrink(const ShrinkOptions& options) override {
    auto next = session_->Shrink(options_, options);
    if (!next) return tl::make_unexpected(next.error());
    return std::make_unique<CommunicatorImpl>(options_, std::move(*next));
  }

 private:
  Caller Self() const { return {rank(), world_size(), options_.widens_lanes}; }
  std::shared_ptr<Work> Reduction(const CallOptions& call, const Result<CollectiveSpec>& spec) {
    if (spec && spec->wire != call.wire && !has_told_widening_.exchange(true)) {
      std::fprintf(stderr, "mlnet: job %s: wire type %s leaves too few levels with %d ranks, %s is used instead\n",
                   options_.job.c_str(), NameOf(call.wire), world_size(), NameOf(spec->wire));
    }
    return Submit(spec, call);
  }
  std::shared_ptr<Work> Submit(const Result<CollectiveSpec>& spec, const CallOptions& options) {
    return session_->Submit(spec, options);
  }

  const JoinOptions options_;
  std::atomic<bool> has_told_widening_{false};
  std::unique_ptr<Session> session_;
};

}  // namespace
}  // namespace worker

Result<std::unique_ptr<Communicator>> Communicator::Join(const JoinOptions& options) {
  if (auto valid = worker::Check(options); !valid) return tl::make_unexpected(valid.error());
  auto session = worker::Session::Join(options, /*is_server=*/false);
  if (!session) return tl::make_unexpected(session.error());
  return std::make_unique<worker::CommunicatorImpl>(options, std::move(*session));
}

}  // namespace mlnet
