// SPDX-License-Identifier: Apache-2.0
// Whole small files. Not by std::ifstream: its buffer throws where the kernel refuses to read what it has opened, as it does for a
// folder, and in /proc for a process that has ended in between.
#pragma once

#include <string>

#include "mlnet/error.h"

namespace mlnet {

/// Errors name the path: "read PATH: No such file or directory".
Result<std::string> ReadFile(const std::string& path, const std::string& hint = {});

}  // namespace mlnet
