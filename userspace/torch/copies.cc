// SPDX-License-Identifier: Apache-2.0
// What moves bytes and adds nothing: broadcast, the gathers, scatter, barrier. Any dtype.
#include <ATen/ATen.h>

#include <stdexcept>
#include <utility>

#include "process_group.h"
#include "staging.h"

namespace mlnet::torch_backend {

WorkPtr ProcessGroupMlnet::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  if (tensors.empty()) throw std::runtime_error("mlnet: broadcast needs at least one tensor");
  CheckSame(tensors, tensors[0], "broadcast");
  if (opts.rootTensor < 0 || opts.rootTensor >= static_cast<int64_t>(tensors.size())) {
    throw std::runtime_error("mlnet: broadcast has no tensor number " + std::to_string(opts.rootTensor));
  }
  const at::Tensor& source = tensors[static_cast<size_t>(opts.rootTensor)];
  const at::Tensor staged = IsChunked(source) ? source : Contiguous(source);
  Pending pending{.label = Label("broadcast"), .op = c10d::OpType::BROADCAST, .inputs = tensors, .outputs = {tensors}};
  const int root = static_cast<int>(opts.rootRank);
  const CallOptions call = Call(opts.timeout);
  if (IsChunked(source)) {
    ChunkedCall chunked{.tensor = source, .copies_in = root == getRank(), .copies_out = root != getRank()};
    chunked.issue = [root, call, size = source.element_size()](Communicator& comm, void* data, int64_t, int64_t count) {
      return comm.Broadcast(data, static_cast<size_t>(count) * size, root, call);
    };
    pending.parts.push_back(Comm().Chunked(std::move(chunked)));
  } else {
    pending.parts.push_back(Comm().Broadcast(staged.data_ptr(), staged.nbytes(), root, call));
  }
  pending.finish = [staged, tensors] {
    for (const at::Tensor& tensor : tensors) CopyBack(staged, tensor);
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
  Pending pending{.label = Label("all_gather"), .op = c10d::OpType::ALLGATHER, .inputs = inputs, .outputs = outputs};
  pending.parts.push_back(Comm().AllGather(in.data_ptr(), out.data_ptr(), in.nbytes(), Call(opts.timeout)));
  pending.finish = [in, out, outputs] {
    for (const Tensors& list : outputs) {
      for (size_t i = 0; i < list.size(); ++i) CopyBack(out.select(0, static_cast<int64_t>(i)), list[i]);
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
                  .inputs = {input}, .outputs = {{output}}};
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
  Pending pending{.label = Label("all_gather_coalesced"), .op = c10d::OpType::ALLGATHER_COALESCED, .inputs = inputs,
                  .outputs = outputs};
  for (size_t i = 0; i < inputs.size(); ++i) {
    CheckTensor(inputs[i], "all_gather_coalesced");
    const at::Tensor in = Contiguous(inputs[i]);
    const at::Tensor out = at::empty({getSize(), in.numel()}, in.options());
    pending.parts.push_back(Comm().AllGather(in.data_ptr(), out.data_ptr(), in.nbytes(), Call(opts.timeout)));
    pending.finish = [before = std::move(pending.finish), in, out, outputs, i] {
      if (before) before();
      for (size_t rank = 0; rank < outputs.size(); ++rank) {
        CopyBack(out.select(0, static_cast<int64_t>(rank)), outputs[rank][i]);
      }
    };
  }
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  CheckCount(inputs.size(), 1, "gather", "input tensors");
  CheckTensor(inputs[0], "gather");
  const bool is_root = opts.rootRank == getRank();
  CheckCount(outputs.size(), is_root ? 1 : 0, "gather", "lists of output tensors");
  if (is_root) {
    CheckCount(outputs[0].size(), static_cast<size_t>(getSize()), "gather", "output tensors");
    CheckSame(outputs[0], inputs[0], "gather");
  }
  const at::Tensor in = Contiguous(inputs[0]);
  const at::Tensor out = at::empty({is_root ? getSize() : 0, in.numel()}, in.options());
  Pending pending{.label = Label("gather"), .op = c10d::OpType::GATHER, .inputs = inputs, .outputs = outputs};
  pending.parts.push_back(Comm().Gather(in.data_ptr(), is_root ? out.data_ptr() : nullptr, in.nbytes(),
                                        static_cast<int>(opts.rootRank), Call(opts.timeout)));
  pending.finish = [in, out, outputs] {
    const at::NoGradGuard no_grad;
    for (const Tensors& list : outputs) {
      for (size_t i = 0; i < list.size(); ++i) CopyBack(out.select(0, static_cast<int64_t>(i)), list[i]);
    }
  };
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) {
  CheckCount(outputs.size(), 1, "scatter", "output tensors");
  CheckTensor(outputs[0], "scatter");
  const bool is_root = opts.rootRank == getRank();
  CheckCount(inputs.size(), is_root ? 1 : 0, "scatter", "lists of input tensors");
  at::Tensor in;
  if (is_root) {
    CheckCount(inputs[0].size(), static_cast<size_t>(getSize()), "scatter", "input tensors");
    CheckSame(inputs[0], outputs[0], "scatter");
    Tensors flat;
    for (const at::Tensor& input : inputs[0]) flat.push_back(Contiguous(input).view({-1}));
    in = at::cat(flat);
  }
  const at::Tensor out = Contiguous(outputs[0]);
  Pending pending{.label = Label("scatter"), .op = c10d::OpType::SCATTER,
                  .inputs = is_root ? inputs[0] : Tensors{}, .outputs = {outputs}};
  pending.parts.push_back(Comm().Scatter(is_root ? in.data_ptr() : nullptr, out.data_ptr(), out.nbytes(),
                                         static_cast<int>(opts.rootRank), Call(opts.timeout)));
  pending.finish = [in, out, target = outputs[0]] { CopyBack(out, target); };
  return Submit(std::move(pending));
}

WorkPtr ProcessGroupMlnet::barrier(const c10d::BarrierOptions& opts) {
  Pending pending{.label = Label("barrier"), .op = c10d::OpType::BARRIER};
  pending.parts.push_back(Comm().Barrier(Call(opts.timeout)));
  return Submit(std::move(pending));
}

}  // namespace mlnet::torch_backend
