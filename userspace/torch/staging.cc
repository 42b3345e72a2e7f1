// SPDX-License-Identifier: Apache-2.0
#include "staging.h"

#include <ATen/core/grad_mode.h>

#include <stdexcept>

namespace mlnet::torch_backend {

void CheckTensor(const at::Tensor& tensor, const char* collective) {
  if (tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu()) return;
  const std::string what = !tensor.defined() ? std::string("an undefined tensor")
                                             : "a " + c10::str(tensor.layout(), " tensor on ", tensor.device());
  throw std::runtime_error(std::string("mlnet: ") + collective + " got " + what +
                           "; it works on dense CPU tensors (call .cpu() or .to_dense() first)");
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

at::Tensor Contiguous(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

void CopyBack(const at::Tensor& staged, at::Tensor tensor) {
  const at::NoGradGuard no_grad;
  if (staged.data_ptr() != tensor.data_ptr() || !tensor.is_contiguous()) tensor.copy_(staged);
}

}  // namespace mlnet::torch_backend
