// SPDX-License-Identifier: Apache-2.0
#include "process_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "gil.h"
#include "staging.h"

namespace mlnet::torch_backend {
namespace {

using RedOp = c10d::ReduceOp::RedOpType;

// How long leaving waits for what is still in flight: enough for results that are on their way.
constexpr std::chrono::milliseconds kCloseGrace{2000};

bool SlotEngineCanReduce(const at::Tensor& tensor, RedOp op) {
  const bool dtype = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kInt;
  return dtype && (op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG);
}

CallOptions Call(std::chrono::milliseconds timeout) {
  CallOptions options;
  if (timeout.count() > 0) options.timeout = timeout;
  return options;
}

void Divide(at::Tensor tensor, int divisor) {
  // Integers truncate, as NCCL's average does.
  if (tensor.is_floating_point()) {
    tensor.div_(divisor);
  } else {
    tensor.div_(divisor, "trunc");
  }
}

void CheckSame(const Tensors& tensors, const at::Tensor& like, const char* collective) {
  for (const at::Tensor& tensor : tensors) {
    CheckTensor(tensor, collective);
    if (tensor.scalar_type() == like.scalar_type() && tensor.numel() == like.numel()) continue;
    throw std::runtime_error(std::string("mlnet: ") + collective + " needs tensors of one dtype and size, got " +
                             DtypeName(like) + c10::str(like.sizes()) + " and " + DtypeName(tensor) +
                             c10::str(tensor.sizes()));
  }
}

void CheckCount(size_t got, size_t want, const char* collective, const char* what) {
  if (got == want) return;
  throw std::runtime_error(std::string("mlnet: ") + collective + " needs " + std::to_string(want) + " " + what +
                           ", got " + std::to_string(got));
}

}  // namespace

ProcessGroupMlnet::ProcessGroupMlnet(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                     std::chrono::milliseconds timeout)
    : BackendBase(rank, size), membership_(JoinThroughStore(*store, rank, size, timeout)),
      finisher_(std::make_unique<Finisher>()), fallback_(store, rank, size, timeout) {
#if TORCH_VERSION_MAJOR < 2
  init();
#endif
}

ProcessGroupMlnet::~ProcessGroupMlnet() { Close(); }

void ProcessGroupMlnet::Close() {
  const WithoutGil no_gil;
  const std::lock_guard<std::mutex> lock(close_mutex_);
  if (!finisher_) return;
  const bool idle = finisher_->WaitIdle(kCloseGrace);
  final_stats_ = {membership_.job, sequence_, fallback_.Counts(), membership_.comm->Stats()};
  // Still waiting for others: closing the communicator ends those collectives with E_CANCELLED.
  if (!idle) membership_.comm.reset();
  finisher_.reset();
  membership_.comm.reset();
  fallback_.Close();
}

GroupStats ProcessGroupMlnet::Stats() const {
  const std::lock_guard<std::mutex> lock(close_mutex_);
  if (!membership_.comm) return final_stats_;
  return {membership_.job, sequence_, fallback_.Counts(), membership_.comm->Stats()};
}

Communicator& ProcessGroupMlnet::Comm() {
  if (!membership_.comm) throw std::runtime_error("mlnet: the process group is closed");
  return *membership_.comm;
}

uint64_t ProcessGroupMlnet::getSequenceNumberForGroup() { return sequence_; }

std::string ProcessGroupMlnet::Label(const std::string& collective) {
  return collective + " #" + std::to_string(sequence_++);
}

WorkPtr ProcessGroupMlnet::Submit(Pending pending) {
  auto work = c10::make_intrusive<MlnetWork>(getRank(), std::move(pending));
  finisher_->Add(work);
  return work;
}

// Adds the sum of one tensor to `pending`.
void ProcessGroupMlnet::Reduce(Pending& pending, at::Tensor tensor, RedOp op, int divisor,
                               const CallOptions& call) {
  const at::Tensor staged = Contiguous(tensor);
  const DataType dtype = staged.scalar_type() == at::kFloat ? DataType::kFloat32 : DataType::kInt32;
  void* data = staged.data_ptr();
  pending.parts.push_back(
      Comm().AllReduce(data, data, static_cast<size_t>(staged.numel()), dtype, ReduceOp::kSum, call));
  pending.finish = [before = std::move(pending.finish), staged, tensor, average = op == c10d::ReduceOp::AVG,
                    divisor] {
    if (before) before();
    if (average) Divide(staged, divisor);
    CopyBack(staged, tensor);
  };
}

WorkPtr ProcessGroupMlnet::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.empty()) throw std::runtime_error("mlnet: all_reduce needs at least one tensor");
  const RedOp op = opts.reduceOp;
  if (tensors[0].is_sparse()) return DelegateAllreduce(tensors, opts);
  CheckSame(tensors, tensors[0], "all_reduce");
  if (!SlotEngineCanReduce(tensors[0], op)) return DelegateAllreduce(tensors, opts);

  Pending pending{.label = Label("all_reduce"), .op = c10d::OpType::ALLREDUCE, .outputs = {tensors}};
  // Several tensors in one call are several contributions of this rank, as in Gloo and NCCL.
  at::Tensor sum = tensors[0];
  if (tensors.size() > 1) {
    const at::NoGradGuard no_grad;
    sum = tensors[0].clone(at::MemoryFormat::Contiguous);
    for (size_t i = 1; i < tensors.size(); ++i) sum.add_(tensors[i].reshape(sum.sizes()));
  }
  const int contributions = getSize() * static_cast<int>(tensors.size());
  Reduce(pending, sum, op, contributions, Call(opts.timeout));
  if (tensors.size() > 1) {
    pending.finish = [before = std::move(pending.finish), sum, tensors]() mutable {
      before();
      for (at::Tensor& tensor : tensors) tensor.copy_(sum.reshape(tensor.sizes()));
    };
  }
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  const RedOp op = opts.reduceOp;
  for (const at::Tensor& tensor : tensors) {
    CheckTensor(tensor, "all_reduce_coalesced");
    if (SlotEngineCanReduce(tensor, op)) continue;
    return Delegate({"all_reduce_coalesced", DtypeName(tensor), OpName(op)}, c10d::OpType::ALLREDUCE_COALESCED,
                    {tensors}, [&](BackendBase& gloo) { return gloo.allreduce_coalesced(tensors, opts); });
  }
  Pending pending{.label = Label("all_reduce_coalesced"), .op = c10d::OpType::ALLREDUCE_COALESCED,
                  .outputs = {tensors}};
  for (const at::Tensor& tensor : tensors) Reduce(pending, tensor, op, getSize(), Call(opts.timeout));
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  if (tensors.empty()) throw std::runtime_error("mlnet: broadcast needs at least one tensor");
  CheckSame(tensors, tensors[0], "broadcast");
  if (opts.rootTensor < 0 || opts.rootTensor >= static_cast<int64_t>(tensors.size())) {
    throw std::runtime_error("mlnet: broadcast has no tensor number " + std::to_string(opts.rootTensor));
  }
  const at::Tensor staged = Contiguous(tensors[static_cast<size_t>(opts.rootTensor)]);
  Pending pending{.label = Label("broadcast"), .op = c10d::OpType::BROADCAST, .outputs = {tensors}};
  pending.parts.push_back(
      Comm().Broadcast(staged.data_ptr(), staged.nbytes(), static_cast<int>(opts.rootRank), Call(opts.timeout)));
  pending.finish = [staged, tensors] {
    for (const at::Tensor& tensor : tensors) CopyBack(staged.view(tensor.sizes()), tensor);
  };
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& opts) {
  if (inputs.empty()) throw std::runtime_error("mlnet: all_gather needs at least one tensor");
  CheckSame(inputs, inputs[0], "all_gather");
  CheckCount(outputs.size(), inputs.size(), "all_gather", "lists of output tensors");
  const size_t each = static_cast<size_t>(getSize()) * inputs.size();
  for (const Tensors& list : outputs) {
    CheckCount(list.size(), each, "all_gather", "output tensors");
    CheckSame(list, inputs[0], "all_gather");
  }
  const at::NoGradGuard no_grad;
  const at::Tensor in = inputs.size() == 1 ? Contiguous(inputs[0]).view({-1}) : at::cat([&] {
    Tensors flat;
    for (const at::Tensor& input : inputs) flat.push_back(Contiguous(input).view({-1}));
    return flat;
  }());
  const at::Tensor out = at::empty({static_cast<int64_t>(each), inputs[0].numel()}, in.options());
  Pending pending{.label = Label("all_gather"), .op = c10d::OpType::ALLGATHER, .outputs = outputs};
  pending.parts.push_back(Comm().AllGather(in.data_ptr(), out.data_ptr(), in.nbytes(), Call(opts.timeout)));
  pending.finish = [in, out, outputs] {
    for (const Tensors& list : outputs) {
      for (size_t i = 0; i < list.size(); ++i) {
        at::Tensor target = list[i];
        target.copy_(out.select(0, static_cast<int64_t>(i)).view(target.sizes()));
      }
    }
  };
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::_allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions& opts) {
  CheckTensor(input, "all_gather_into_tensor");
  CheckTensor(output, "all_gather_into_tensor");
  if (output.scalar_type() != input.scalar_type() || output.numel() != input.numel() * getSize()) {
    throw std::runtime_error("mlnet: all_gather_into_tensor of " + DtypeName(input) + c10::str(input.sizes()) +
                             " cannot fill " + DtypeName(output) + c10::str(output.sizes()));
  }
  const at::Tensor in = Contiguous(input);
  const at::Tensor out = Contiguous(output);
  Pending pending{.label = Label("all_gather_into_tensor"), .op = c10d::OpType::_ALLGATHER_BASE,
                  .outputs = {{output}}};
  pending.parts.push_back(Comm().AllGather(in.data_ptr(), out.data_ptr(), in.nbytes(), Call(opts.timeout)));
  pending.finish = [in, out, output] { CopyBack(out, output); };
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& opts) {
  CheckCount(outputs.size(), static_cast<size_t>(getSize()), "all_gather_coalesced", "lists of output tensors");
  for (const Tensors& list : outputs) {
    CheckCount(list.size(), inputs.size(), "all_gather_coalesced", "output tensors per rank");
  }
  Pending pending{.label = Label("all_gather_coalesced"), .op = c10d::OpType::ALLGATHER_COALESCED,
                  .outputs = outputs};
  for (size_t i = 0; i < inputs.size(); ++i) {
    CheckTensor(inputs[i], "all_gather_coalesced");
    const at::Tensor in = Contiguous(inputs[i]);
    const at::Tensor out = at::empty({getSize(), in.numel()}, in.options());
    pending.parts.push_back(Comm().AllGather(in.data_ptr(), out.data_ptr(), in.nbytes(), Call(opts.timeout)));
    pending.finish = [before = std::move(pending.finish), in, out, outputs, i] {
      if (before) before();
      for (size_t rank = 0; rank < outputs.size(); ++rank) {
        at::Tensor target = outputs[rank][i];
        target.copy_(out.select(0, static_cast<int64_t>(rank)).view(target.sizes()));
      }
    };
  }
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::barrier(const c10d::BarrierOptions& opts) {
  Pending pending{.label = Label("barrier"), .op = c10d::OpType::BARRIER};
  pending.parts.push_back(Comm().Barrier(Call(opts.timeout)));
  return Submit(std::move(pending));
}

}  // namespace mlnet::torch_backend
