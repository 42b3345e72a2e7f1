// SPDX-License-Identifier: Apache-2.0
// The c10d backend "mlnet": turns torch's collectives into libmlnet's.
// New here? reductions.cc and copies.cc have what the slot engine does, delegated.cc what goes to Gloo,
// work.h the handle, process_group.cc joining and leaving.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "fallback.h"
#include "finisher.h"
#include "rendezvous.h"
#include "torch_compat.h"

namespace mlnet::torch_backend {

struct GroupStats {
  std::string job;
  uint64_t collectives = 0;                   // issued on this group, delegated ones included
  std::map<std::string, uint64_t> delegated;  // "all_reduce int64 SUM" -> calls
  CommStats comm;
};

class ProcessGroupMlnet final : public BackendBase {
 public:
  /// Joins the job: blocks until all ranks of the group are there, at most `timeout`, which is also the
  /// default deadline of every collective.
  ProcessGroupMlnet(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                    std::chrono::milliseconds timeout, bool mac);
  ~ProcessGroupMlnet() override;

  /// Leaves the job in an orderly way; every later call raises. Safe to call twice.
  void Close();
  GroupStats Stats() const;

  const std::string getBackendName() const override { return "mlnet"; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override;

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts = {}) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts = {}) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts = {}) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts = {}) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts = {}) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts = {}) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts = {}) override;

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts = {}) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts = {}) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts = {}) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts = {}) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts = {}) override;
  /// Sum of floats with lanes of the given type; see CallOptions.
  WorkPtr AllReduceAs(const at::Tensor& tensor, WireType wire, const c10::optional<at::Tensor>& residual,
                      bool is_stochastic);
  /// Over torch's store: rank 0 learns who is missing, by name and within the timeout.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks = false) override;

  // Delegated to the inner Gloo group.
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts = {}) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts = {}) override;
  WorkPtr send(Tensors& tensors, int dst, int tag) override;
  WorkPtr recv(Tensors& tensors, int src, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  CallQueue& Comm();
  std::string Label(const std::string& collective);
  WorkPtr Submit(Pending pending);
  void Reduce(Pending& pending, at::Tensor tensor, c10d::ReduceOp::RedOpType op, int divisor,
              const CallOptions& call);
  WorkPtr ReduceScatter(const std::string& name, const at::Tensor& output, const at::Tensor& input,
                        const c10d::ReduceScatterOptions& opts);
  WorkPtr DelegateAllreduce(Tensors& tensors, const c10d::AllreduceOptions& opts);
  WorkPtr DelegateReduce(Tensors& tensors, const c10d::ReduceOptions& opts);
  WorkPtr Delegate(const Request& request, c10d::OpType op, std::vector<Tensors> outputs,
                   const std::function<WorkPtr(BackendBase&)>& call, std::function<void()> finish = {});

  mutable std::mutex close_mutex_;  // protects closing against Stats()
  Membership membership_;
  std::unique_ptr<Finisher> finisher_;
  GroupStats final_stats_;  // what Stats() says once closed
  c10::intrusive_ptr<c10d::Store> store_;
  std::atomic<uint64_t> monitored_barriers_{0};
  Fallback fallback_;
  std::atomic<uint64_t> sequence_{0};
};

}  // namespace mlnet::torch_backend
