// SPDX-License-Identifier: Apache-2.0
// What differs between torch 1.13 and 2.x, in one place.
// Why: 1.13 extends c10d by deriving from ProcessGroup, 2.x by deriving from Backend; the virtual
// functions have the same names and types in both, so everything else is one source.
#pragma once

#include <torch/csrc/api/include/torch/version.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

namespace mlnet::torch_backend {

#if TORCH_VERSION_MAJOR >= 2
using BackendBase = c10d::Backend;
#else
using BackendBase = c10d::ProcessGroup;
#endif
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

}  // namespace mlnet::torch_backend
