// SPDX-License-Identifier: Apache-2.0
// Why the kernel does not take a BPF object. libbpf tells it by one callback of the process, in lines of text.
#pragma once

#include <string>

#include "mlnet/error.h"

namespace mlnet::datapath {

/// What libbpf says on this thread from now on is what LoadError goes by.
void BeginLoad();

/// kUnsupported with the verifier's last words where it refused a program; kPermission names the capabilities where they are
/// missing.
Error LoadError(const std::string& what, int err);

}  // namespace mlnet::datapath
