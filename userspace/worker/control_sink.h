// SPDX-License-Identifier: Apache-2.0
// What the engine tells mlnetd. The other direction is Engine::Fail and Engine::SetPolicy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mlnet/communicator.h"
#include "recorder.h"

namespace mlnet::worker {

class ControlSink {
 public:
  virtual ~ControlSink() = default;
  /// The aggregator holds another collective at this place.
  virtual void Describe(uint64_t ordinal, uint32_t fingerprint, const std::string& text) = 0;
  /// This rank gave up; the job is to fail everywhere.
  virtual void Abort(const Error& error) = 0;
  virtual void Report(const CommStats& stats) = 0;
  /// What was recorded since the last call; `is_last`: recording is over, and nothing follows.
  virtual void Traced(const std::vector<TraceRecord>& records, bool is_last) = 0;
};

}  // namespace mlnet::worker
