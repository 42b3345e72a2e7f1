// SPDX-License-Identifier: Apache-2.0
// Joins a job and ties the parts together: connection to mlnetd, sockets and inbox, engine, thread.
#include "mlnet/communicator.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>

#include "calls.h"
#include "control_link.h"
#include "engine.h"
#include "engine_thread.h"
#include "mlnet/limits.h"
#include "transport/udp_transport.h"

namespace mlnet {
namespace worker {
namespace {

constexpr size_t kJobNameMax = 63;

Result<void> Check(const JoinOptions& options) {
  const bool is_name = !options.job.empty() && options.job.size() <= kJobNameMax &&
                       std::all_of(options.job.begin(), options.job.end(), [](unsigned char c) {
                         return std::isalnum(c) || c == '.' || c == '_' || c == '-';
                       });
  if (!is_name) {
    return Err(ErrorCode::kInvalidArgument,
               "job name '" + options.job + "' is not 1 to 63 of [A-Za-z0-9._-]");
  }
  if (options.world_size < 1 || options.world_size > kRanksMax) {
    return Err(ErrorCode::kInvalidArgument,
               "world_size " + std::to_string(options.world_size) + " is not within 1.." + std::to_string(kRanksMax));
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    return Err(ErrorCode::kInvalidArgument, "rank " + std::to_string(options.rank) + " is not within 0.." +
                                                std::to_string(options.world_size - 1));
  }
  if (options.timeout.count() <= 0) {
    return Err(ErrorCode::kInvalidArgument, "timeout must be positive");
  }
  return {};
}

class CommunicatorImpl final : public Communicator {
 public:
  CommunicatorImpl(const JoinOptions& options, const EngineConfig& config, std::unique_ptr<ControlLink> control,
                   std::unique_ptr<UdpTransport> transport, Fd ring)
      : options_(options),
        control_(std::move(control)),
        transport_(std::move(transport)),
        engine_(config, *transport_, *control_),
        thread_(engine_, transport_->inbox(), *control_, std::move(ring)) {}
  ~CommunicatorImpl() override { thread_.Stop(); }

  Result<void> Start() { return thread_.Start(); }

  int rank() const override { return engine_.config().rank; }
  int world_size() const override { return engine_.config().world_size; }

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
    return Submit(BroadcastSpec(Self(), buffer, bytes, root, options));
  }
  std::shared_ptr<Work> AllGather(const void* in, void* out, size_t bytes, const CallOptions& options) override {
    return Submit(AllGatherSpec(Self(), in, out, bytes, options));
  }
  std::shared_ptr<Work> Gather(const void* in, void* out, size_t bytes, int root,
                               const CallOptions& options) override {
    return Submit(GatherSpec(Self(), in, out, bytes, root, options));
  }
  std::shared_ptr<Work> Scatter(const void* in, void* out, size_t bytes, int root,
                                const CallOptions& options) override {
    return Submit(ScatterSpec(Self(), in, out, bytes, root, options));
  }
  std::shared_ptr<Work> Barrier(const CallOptions& options) override { return Submit(BarrierSpec(options)); }
  CommStats Stats() const override { return engine_.Stats(); }

 private:
  Caller Self() const { return {rank(), world_size(), options_.widens_lanes}; }
  std::shared_ptr<Work> Reduction(const CallOptions& call, const Result<CollectiveSpec>& spec) {
    if (spec && spec->wire != call.wire && !has_told_widening_.exchange(true)) {
      std::fprintf(stderr, "mlnet: job %s: wire type %s leaves too few levels with %d ranks, %s is used instead\n",
                   options_.job.c_str(), NameOf(call.wire), world_size(), NameOf(spec->wire));
    }
    return Submit(spec);
  }
  std::shared_ptr<Work> Submit(const Result<CollectiveSpec>& spec) {
    if (!spec) return WorkState::Done(tl::make_unexpected(spec.error()));
    auto work = engine_.Submit(*spec);
    thread_.Notify();
    return work;
  }

  const JoinOptions options_;
  std::atomic<bool> has_told_widening_{false};
  std::unique_ptr<ControlLink> control_;
  std::unique_ptr<UdpTransport> transport_;
  Engine engine_;
  EngineThread thread_;
};

// Every cell a pool may use must be inside the inbox that was handed over.
Result<void> CheckCells(const EngineConfig& config, size_t num_cells) {
  const auto fits = [num_cells](const PoolConfig& pool) {
    return !pool.is_open || pool.cell_base + 2ULL * pool.slots() <= num_cells;
  };
  for (const TreeConfig& tree : config.trees) {
    if (std::all_of(tree.pools.begin(), tree.pools.end(), fits) &&
        std::all_of(tree.fixups.begin(), tree.fixups.end(), fits)) {
      continue;
    }
    return Err(ErrorCode::kProtocol, "mlnetd's inbox of " + std::to_string(num_cells) + " cells is too small",
               "run the same mlnet version of daemon and library");
  }
  return {};
}

}  // namespace
}  // namespace worker

Result<std::unique_ptr<Communicator>> Communicator::Join(const JoinOptions& options) {
  using namespace worker;
  if (auto valid = Check(options); !valid) return tl::make_unexpected(valid.error());
  auto control = ControlLink::Connect(options.socket);
  if (!control) return tl::make_unexpected(control.error());
  auto reply = (*control)->Join(options);
  if (!reply) return tl::make_unexpected(reply.error());
  auto inbox = Inbox::Open(reply->inbox.get(), reply->wake.get(), reply->ring.get(), reply->local_index);
  if (!inbox) return tl::make_unexpected(inbox.error());
  if (auto fits = CheckCells(reply->config, inbox->num_cells()); !fits)
    return tl::make_unexpected(fits.error());
  auto transport = UdpTransport::Open(reply->endpoints, reply->config, std::move(*inbox));
  if (!transport) return tl::make_unexpected(transport.error());
  auto communicator = std::make_unique<CommunicatorImpl>(options, reply->config, std::move(*control),
                                                         std::move(*transport), std::move(reply->ring));
  if (auto started = communicator->Start(); !started) return tl::make_unexpected(started.error());
  return communicator;
}

}  // namespace mlnet
