// SPDX-License-Identifier: Apache-2.0
// The few operators that tensors of the test device have. Whatever is not here torch refuses by name, which is how a
// computation that should have been on the host shows.
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "journal.h"
#include "memory.h"
#include "streams.h"

namespace mlnet::test_device {
namespace {

const c10::DispatchKeySet kKeys{c10::DispatchKey::PrivateUse1};

at::Tensor Empty(at::IntArrayRef size, c10::optional<at::ScalarType> type, c10::optional<at::Layout>,
                 c10::optional<at::Device>, c10::optional<bool>, c10::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &TheAllocator(), kKeys, c10::dtype_or_default(type), format);
}

at::Tensor EmptyStrided(at::IntArrayRef size, at::IntArrayRef stride, c10::optional<at::ScalarType> type,
                        c10::optional<at::Layout>, c10::optional<at::Device>, c10::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &TheAllocator(), kKeys, c10::dtype_or_default(type));
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool) {
  const bool is_to_host = to.device().is_cpu();
  const bool is_to_device = from.device().is_cpu();
  const at::Tensor& device_side = is_to_host ? from : to;
  TheJournal().Add({.what = is_to_host ? "to_host" : is_to_device ? "to_device" : "on_device",
                    .bytes = static_cast<int64_t>(from.nbytes()),
                    .number = OffsetOf(device_side),
                    .stream = CurrentStream()});
  if (is_to_host) TheJournal().CopyToHost();
  OnHost(to).copy_(OnHost(from));
  return to;
}

at::Tensor& Fill(at::Tensor& self, const at::Scalar& value) {
  OnHost(self).fill_(value);
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("_copy_from", &CopyFrom);
  library.impl("fill_.Scalar", &Fill);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  library.impl("_reshape_alias", &at::native::_reshape_alias);
}

// Every device inside of PyTorch's tree has this: collectives are no part of a graph.
TORCH_LIBRARY_IMPL(_, AutogradPrivateUse1, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace mlnet::test_device
