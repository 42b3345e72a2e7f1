// SPDX-License-Identifier: Apache-2.0
// Memory of the test device. Its addresses are reserved but not accessible, so that whoever forgets to copy crashes
// instead of passing; the values are in ordinary memory that only this device knows.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

namespace mlnet::test_device {

inline const c10::Device kDevice{c10::DeviceType::PrivateUse1, 0};

c10::Allocator& TheAllocator();

/// The values of a tensor of this device as a CPU tensor; a tensor of the CPU as it is.
at::Tensor OnHost(const at::Tensor& tensor);
/// Of its first element in its allocation.
int64_t OffsetOf(const at::Tensor& tensor);

}  // namespace mlnet::test_device
