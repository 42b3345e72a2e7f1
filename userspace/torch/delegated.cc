// SPDX-License-Identifier: Apache-2.0
// What the slot engine does not do yet: handed to the inner Gloo group, counted and logged by Fallback.
#include <ATen/ATen.h>

#include <stdexcept>
#include <utility>

#include "process_group.h"
#include "staging.h"

namespace mlnet::torch_backend {
namespace {

std::string NameOf(const Tensors& tensors) { return tensors.empty() ? std::string() : DtypeName(tensors[0]); }

}  // namespace

WorkPtr ProcessGroupMlnet::Delegate(const Request& request, c10d::OpType op, std::vector<Tensors> outputs,
                                    const std::function<WorkPtr(BackendBase&)>& call,
                                    std::function<void()> finish) {
  Comm();  // raises on a closed group
  Pending pending{.label = Label(request.Key()), .op = op, .finish = std::move(finish), .outputs = std::move(outputs)};
  if (pending.outputs.size() == 1) pending.inputs = pending.outputs[0];  // all of these work in place or alike
  BackendBase& gloo = fallback_.For(request);
  try {
    pending.delegated = call(gloo);
  } catch (const std::exception& error) {
    throw std::runtime_error("mlnet: " + request.Key() + ", done by Gloo: " + error.what() + " (" + kNativeHelp + ")");
  }
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::DelegateAllreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const c10d::ReduceOp::RedOpType op = opts.reduceOp;
  const Request request{"all_reduce", DtypeName(tensors[0]), OpName(op)};
  if (tensors[0].is_sparse()) {
    return Delegate({"all_reduce", "sparse " + request.dtype, request.op}, c10d::OpType::ALLREDUCE, {tensors},
                    [&](BackendBase& gloo) { return gloo.allreduce(tensors, opts); });
  }
  // Gloo reads tensors as if they were contiguous, and knows neither averages nor these two types.
  const at::ScalarType type = tensors[0].scalar_type();
  const bool is_widened = type == at::kShort || type == at::kBFloat16;
  Tensors staged;
  for (const at::Tensor& tensor : tensors) {
    staged.push_back(is_widened ? Contiguous(tensor).to(type == at::kShort ? at::kInt : at::kFloat) : Contiguous(tensor));
  }
  c10d::AllreduceOptions sum = opts;
  const bool average = op == c10d::ReduceOp::AVG;
  if (average) sum.reduceOp = c10d::ReduceOp::SUM;
  const int contributions = getSize() * static_cast<int>(tensors.size());
  return Delegate(request, c10d::OpType::ALLREDUCE, {tensors},
                  [&](BackendBase& gloo) { return gloo.allreduce(staged, sum); },
                  [staged, tensors, average, contributions] {
                    for (size_t i = 0; i < tensors.size(); ++i) {
                      at::Tensor result = staged[i];
                      if (average && result.is_floating_point()) result.div_(contributions);
                      if (average && !result.is_floating_point()) result.div_(contributions, "trunc");
                      CopyBack(result, tensors[i]);
                    }
                  });
}

WorkPtr ProcessGroupMlnet::DelegateReduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const c10d::ReduceOp::RedOpType op = opts.reduceOp;
  c10d::ReduceOptions sum = opts;
  const bool average = op == c10d::ReduceOp::AVG;
  if (average) sum.reduceOp = c10d::ReduceOp::SUM;
  const bool is_root = opts.rootRank == getRank();
  // Gloo leaves partial sums in what the other ranks give it.
  Tensors staged{is_root ? Contiguous(tensors[0]) : Contiguous(tensors[0]).clone()};
  return Delegate({"reduce", DtypeName(tensors[0]), OpName(op)}, c10d::OpType::REDUCE, {tensors},
                  [&](BackendBase& gloo) { return gloo.reduce(staged, sum); },
                  [result = staged[0], target = tensors[0], average, is_root, size = getSize()]() mutable {
                    if (!is_root) return;
                    if (average && result.is_floating_point()) result.div_(size);
                    if (average && !result.is_floating_point()) result.div_(size, "trunc");
                    CopyBack(result, target);
                  });
}

WorkPtr ProcessGroupMlnet::alltoall_base(at::Tensor& output, at::Tensor& input,
                                         std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                         const c10d::AllToAllOptions& opts) {
  return Delegate({"all_to_all_single", DtypeName(input), ""}, c10d::OpType::ALLTOALL_BASE, {{output}},
                  [&](BackendBase& gloo) {
                    return gloo.alltoall_base(output, input, output_splits, input_splits, opts);
                  });
}

WorkPtr ProcessGroupMlnet::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  return Delegate({"all_to_all", NameOf(inputs), ""}, c10d::OpType::ALLTOALL, {outputs},
                  [&](BackendBase& gloo) { return gloo.alltoall(outputs, inputs, opts); });
}

// Point to point is not ordered with the collectives, so it does not pass through the Finisher.
WorkPtr ProcessGroupMlnet::send(Tensors& tensors, int dst, int tag) {
  auto inner = fallback_.For({"send", NameOf(tensors), ""}).send(tensors, dst, tag);
  return c10::make_intrusive<PointToPointWork>(getRank(), c10d::OpType::SEND, tensors, std::move(inner));
}

WorkPtr ProcessGroupMlnet::recv(Tensors& tensors, int src, int tag) {
  auto inner = fallback_.For({"recv", NameOf(tensors), ""}).recv(tensors, src, tag);
  return c10::make_intrusive<PointToPointWork>(getRank(), c10d::OpType::RECV, tensors, std::move(inner));
}

WorkPtr ProcessGroupMlnet::recvAnysource(Tensors& tensors, int tag) {
  auto inner = fallback_.For({"recv_any_source", NameOf(tensors), ""}).recvAnysource(tensors, tag);
  return c10::make_intrusive<PointToPointWork>(getRank(), c10d::OpType::RECVANYSOURCE, tensors, std::move(inner));
}

}  // namespace mlnet::torch_backend
