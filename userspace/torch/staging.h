// SPDX-License-Identifier: Apache-2.0
// A contiguous buffer for a caller's tensor: the tensor itself where it is one, else a copy.
#pragma once

#include "torch_compat.h"

namespace mlnet::torch_backend {

/// Throws unless mlnet can work on it: dense, on the CPU.
void CheckTensor(const at::Tensor& tensor, const char* collective);

/// "float32", as torch's users call it.
std::string DtypeName(const at::Tensor& tensor);

/// Shares memory with `tensor` where its elements lie in order; views that only pretend to hold their values
/// (conjugated, negated) are copied too.
at::Tensor Contiguous(const at::Tensor& tensor);

/// Writes `staged` back into `tensor` if it is a copy.
void CopyBack(const at::Tensor& staged, at::Tensor tensor);

}  // namespace mlnet::torch_backend
