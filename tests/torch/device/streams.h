// SPDX-License-Identifier: Apache-2.0
// Streams and events of the test device: copies are done at once, so these only write down who waits for what.
#pragma once

#include <cstdint>

namespace mlnet::test_device {

/// Of this thread; 0 is the default stream.
int64_t CurrentStream();

}  // namespace mlnet::test_device
