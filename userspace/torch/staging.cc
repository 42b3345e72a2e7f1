// SPDX-License-Identifier: Apache-2.0
#include "staging.h"

#include <ATen/core/grad_mode.h>

#include <stdexcept>

#include "device_stream.h"

namespace mlnet::torch_backend {

void CheckTensor(const at::Tensor& tensor, const char* collective) {
  if (tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_meta()) return;
  const std::string what = !tensor.defined() ? std::string("an undefined tensor")
                                             : "a " + c10::str(tensor.layout(), " tensor on ", tensor.device());
  throw std::runtime_error(std::string("mlnet: ") + collective + " got " + what +
                           "; it works on dense tensors with values (call .to_dense() first)");
}

std::string DtypeName(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kByte: return "uint8";
    case at::kChar: return "int8";
    case at::kShort: return "int16";
    case at::kInt: return "int32";
    case at::kLong: return "int64";
    case at::kHalf: return "float16";
    case at::kFloat: return "float32";
    case at::kDouble: return "float64";
    case at::kBool: return "bool";
    case at::kBFloat16: return "bfloat16";
    default: return c10::toString(tensor.scalar_type());
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

CallOptions Call(std::chrono::milliseconds timeout) {
  CallOptions options;
  if (timeout.count() > 0) options.timeout = timeout;
  return options;
}

at::Tensor Contiguous(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (!tensor.device().is_cpu()) {  // through host memory, pinned where the device gains from it
    const auto host = tensor.options().device(at::kCPU).pinned_memory(tensor.is_cuda());
    return at::empty(tensor.sizes(), host).copy_(tensor.detach());
  }
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

void CopyBack(const at::Tensor& staged, at::Tensor tensor) {
  const at::NoGradGuard no_grad;
  const bool is_cpu = tensor.device().is_cpu();
  const bool is_itself = staged.is_same(tensor) ||
                         (is_cpu && staged.data_ptr() == tensor.data_ptr() && tensor.is_contiguous());
  if (is_itself) return;
  tensor.copy_(staged.reshape(tensor.sizes()));
  // A copy that ends on the device (into a view, or from another tensor there) is only queued.
  if (!is_cpu) Synchronize(tensor.device());
}

}  // namespace mlnet::torch_backend
