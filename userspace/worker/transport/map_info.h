// SPDX-License-Identifier: Apache-2.0
// Facts about a BPF map behind a file descriptor, without the bpf system call: the kernel shows them
// in /proc to everybody, the call needs a capability.
#pragma once

#include <cstddef>

#include "mlnet/error.h"

namespace mlnet::worker {

Result<size_t> MapMaxEntries(int fd);

}  // namespace mlnet::worker
