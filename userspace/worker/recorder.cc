// SPDX-License-Identifier: Apache-2.0
#include "recorder.h"

#include <algorithm>
#include <iterator>

namespace mlnet::worker {

std::vector<TraceRecord> Recorder::Take(size_t most) {
  const auto end = records_.begin() + static_cast<std::ptrdiff_t>(std::min(most, records_.size()));
  std::vector<TraceRecord> taken(std::make_move_iterator(records_.begin()), std::make_move_iterator(end));
  records_.erase(records_.begin(), end);
  return taken;
}

}  // namespace mlnet::worker
