// SPDX-License-Identifier: Apache-2.0
// all_reduce, reduce and reduce_scatter on the slot engine. What it has no operation for is in delegated.cc.
#include <ATen/ATen.h>

#include <stdexcept>
#include <utility>

#include "process_group.h"
#include "reduction.h"
#include "staging.h"

namespace mlnet::torch_backend {
namespace {

using RedOp = c10d::ReduceOp::RedOpType;

void Divide(at::Tensor tensor, int divisor) {
  // Integers truncate, as NCCL's average does.
  if (tensor.is_floating_point()) {
    tensor.div_(divisor);
  } else {
    tensor.div_(divisor, "trunc");
  }
}

size_t Count(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }

ChunkedCall ChunkedReduction(const at::Tensor& tensor, Reduction reduction, RedOp op, int divisor,
                             const CallOptions& call) {
  ChunkedCall chunked{.tensor = tensor};
  chunked.issue = [reduction, call](Communicator& comm, void* data, int64_t first, int64_t count) {
    CallOptions part = call;
    if (part.residual != nullptr) part.residual += first;
    return comm.AllReduce(data, data, static_cast<size_t>(count), reduction.dtype, reduction.op, part);
  };
  if (op == c10d::ReduceOp::AVG) chunked.finish = [divisor](const at::Tensor& chunk) { Divide(chunk, divisor); };
  return chunked;
}

}  // namespace

// Adds the reduction of one tensor to `pending`.
void ProcessGroupMlnet::Reduce(Pending& pending, at::Tensor tensor, RedOp op, int divisor, const CallOptions& call) {
  const Reduction reduction = *ReductionOf(tensor.scalar_type(), op);
  if (IsChunked(tensor)) {
    pending.parts.push_back(Comm().Chunked(ChunkedReduction(tensor, reduction, op, divisor, call)));
    return;
  }
  const at::Tensor staged = Contiguous(tensor);
  void* data = staged.data_ptr();
  pending.parts.push_back(Comm().AllReduce(data, data, Count(staged), reduction.dtype, reduction.op, call));
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
  if (!ReductionOf(tensors[0].scalar_type(), op)) return DelegateAllreduce(tensors, opts);

  Pending pending{.label = Label("all_reduce"), .op = c10d::OpType::ALLREDUCE, .inputs = tensors, .outputs = {tensors}};
  // Several tensors in one call are several contributions of this rank, as in Gloo and NCCL.
  if (tensors.size() > 1 && op != c10d::ReduceOp::SUM && op != c10d::ReduceOp::AVG) {
    return DelegateAllreduce(tensors, opts);
  }
  at::Tensor sum = tensors[0];
  if (tensors.size() > 1) {
    const at::NoGradGuard no_grad;
    sum = tensors[0].clone(at::MemoryFormat::Contiguous);
    for (size_t i = 1; i < tensors.size(); ++i) sum.add_(tensors[i].reshape(sum.sizes()));
  }
  const int contributions = getSize() * static_cast<int>(tensors.size());
  Reduce(pending, sum, op, contributions, Call(opts.timeout));
  if (tensors.size() > 1) {
    pending.finish = [before = std::move(pending.finish), sum, tensors] {
      if (before) before();
      for (const at::Tensor& tensor : tensors) CopyBack(sum, tensor);
    };
  }
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::AllReduceAs(const at::Tensor& tensor, WireType wire,
                                       const c10::optional<at::Tensor>& residual, bool is_stochastic) {
  CheckTensor(tensor, "all_reduce");
  const auto reduction = ReductionOf(tensor.scalar_type(), c10d::ReduceOp::SUM);
  if (!reduction || !tensor.is_floating_point()) {
    throw std::runtime_error("mlnet: all_reduce with a wire type sums floats, not " + DtypeName(tensor));
  }
  CallOptions call;
  call.wire = wire;
  call.keeps_small = false;
  call.is_stochastic = is_stochastic;
  at::Tensor rest;
  if (residual) {
    rest = *residual;
    if (rest.scalar_type() != at::kFloat || rest.numel() != tensor.numel() || !rest.is_contiguous() ||
        !rest.device().is_cpu()) {
      throw std::runtime_error("mlnet: residual must be a contiguous float32 CPU tensor of the input's size, got " +
                               DtypeName(rest) + c10::str(rest.sizes()));
    }
    call.residual = rest.data_ptr<float>();
  }
  const Tensors tensors{tensor};
  Pending pending{.label = Label("all_reduce"), .op = c10d::OpType::ALLREDUCE, .inputs = tensors, .outputs = {tensors}};
  Reduce(pending, tensor, c10d::ReduceOp::SUM, 1, call);
  pending.finish = [before = std::move(pending.finish), rest] {  // keeps it alive
    if (before) before();
  };
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  const RedOp op = opts.reduceOp;
  for (const at::Tensor& tensor : tensors) {
    CheckTensor(tensor, "all_reduce_coalesced");
    if (ReductionOf(tensor.scalar_type(), op)) continue;
    return Delegate({"all_reduce_coalesced", DtypeName(tensor), OpName(op)}, c10d::OpType::ALLREDUCE_COALESCED,
                    {tensors}, [&](BackendBase& gloo) { return gloo.allreduce_coalesced(tensors, opts); });
  }
  Pending pending{.label = Label("all_reduce_coalesced"), .op = c10d::OpType::ALLREDUCE_COALESCED, .inputs = tensors,
                  .outputs = {tensors}};
  for (const at::Tensor& tensor : tensors) Reduce(pending, tensor, op, getSize(), Call(opts.timeout));
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  if (tensors.size() != 1) throw std::runtime_error("mlnet: reduce takes one tensor");
  CheckTensor(tensors[0], "reduce");
  const auto reduction = ReductionOf(tensors[0].scalar_type(), opts.reduceOp);
  if (!reduction) return DelegateReduce(tensors, opts);
  const bool is_root = opts.rootRank == getRank();
  const at::Tensor staged = Contiguous(tensors[0]);
  Pending pending{.label = Label("reduce"), .op = c10d::OpType::REDUCE, .inputs = tensors, .outputs = {tensors}};
  pending.parts.push_back(Comm().Reduce(staged.data_ptr(), is_root ? staged.data_ptr() : nullptr, Count(staged),
                                        reduction->dtype, static_cast<int>(opts.rootRank), reduction->op,
                                        Call(opts.timeout)));
  pending.finish = [staged, target = tensors[0], is_root, average = opts.reduceOp == c10d::ReduceOp::AVG,
                    size = getSize()] {
    if (!is_root) return;
    if (average) Divide(staged, size);
    CopyBack(staged, target);
  };
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                          const c10d::ReduceScatterOptions& opts) {
  CheckCount(outputs.size(), 1, "reduce_scatter", "output tensors");
  CheckCount(inputs.size(), 1, "reduce_scatter", "lists of input tensors");
  CheckCount(inputs[0].size(), static_cast<size_t>(getSize()), "reduce_scatter", "input tensors");
  CheckTensor(outputs[0], "reduce_scatter");
  CheckSame(inputs[0], outputs[0], "reduce_scatter");
  Tensors flat;
  for (const at::Tensor& input : inputs[0]) flat.push_back(Contiguous(input).view({-1}));
  return ReduceScatter("reduce_scatter", outputs[0], at::cat(flat), opts);
}

WorkPtr ProcessGroupMlnet::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& opts) {
  CheckTensor(output, "reduce_scatter_tensor");
  CheckTensor(input, "reduce_scatter_tensor");
  if (output.scalar_type() != input.scalar_type() || input.numel() != output.numel() * getSize()) {
    throw std::runtime_error("mlnet: reduce_scatter_tensor of " + DtypeName(input) + c10::str(input.sizes()) +
                             " cannot fill " + DtypeName(output) + c10::str(output.sizes()));
  }
  return ReduceScatter("reduce_scatter_tensor", output, Contiguous(input), opts);
}

WorkPtr ProcessGroupMlnet::ReduceScatter(const std::string& name, const at::Tensor& output, const at::Tensor& input,
                                         const c10d::ReduceScatterOptions& opts) {
  const auto reduction = ReductionOf(output.scalar_type(), opts.reduceOp);
  if (!reduction) {
    throw std::runtime_error("mlnet: " + name + " " + DtypeName(output) + " " + OpName(opts.reduceOp) +
                             " is not supported, and Gloo has no reduce_scatter: " + kNativeHelp);
  }
  const at::Tensor staged = Contiguous(output);
  Pending pending{.label = Label(name), .op = c10d::OpType::REDUCE_SCATTER, .inputs = {input}, .outputs = {{output}}};
  pending.parts.push_back(Comm().ReduceScatter(input.data_ptr(), staged.data_ptr(), Count(output), reduction->dtype,
                                               reduction->op, Call(opts.timeout)));
  pending.finish = [input, staged, output, average = opts.reduceOp == c10d::ReduceOp::AVG, size = getSize()] {
    if (average) Divide(staged, size);
    CopyBack(staged, output);
  };
  return Submit(std::move(pending));
}

}  // namespace mlnet::torch_backend
