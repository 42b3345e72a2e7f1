// SPDX-License-Identifier: Apache-2.0
// A contiguous buffer for a caller's tensor: the tensor itself where it is one, else a copy. Tensors of other devices are
// copied whole, blocking; device_work.h is for the large ones.
#pragma once

#include <chrono>

#include "mlnet/communicator.h"
#include "torch_compat.h"

namespace mlnet::torch_backend {

/// Throws unless mlnet can work on it: dense, on the CPU.
void CheckTensor(const at::Tensor& tensor, const char* collective);

/// Throws unless all have the dtype and the number of elements of `like`.
void CheckSame(const Tensors& tensors, const at::Tensor& like, const char* collective);
/// "mlnet: gather needs 3 output tensors, got 2".
void CheckCount(size_t got, size_t want, const char* collective, const char* what);
/// `timeout` of a torch call, where it has one.
CallOptions Call(std::chrono::milliseconds timeout);

/// "float32", as torch's users call it.
std::string DtypeName(const at::Tensor& tensor);

/// Shares memory with `tensor` where its elements lie in order; views that only pretend to hold their values
/// (conjugated, negated) are copied too.
at::Tensor Contiguous(const at::Tensor& tensor);

/// Writes `staged` back into `tensor` if it is a copy; when it returns, any stream may read the tensor.
void CopyBack(const at::Tensor& staged, at::Tensor tensor);

}  // namespace mlnet::torch_backend
