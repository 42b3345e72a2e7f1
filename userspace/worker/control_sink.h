// SPDX-License-Identifier: Apache-2.0
// What the engine tells mlnetd. The other direction is Engine::Fail and Engine::SetPolicy.
#pragma once

#include <cstdint>
#include <string>

#include "mlnet/communicator.h"

namespace mlnet::worker {

class ControlSink {
 public:
  virtual ~ControlSink() = default;
  /// The aggregator holds another collective at this place.
  virtual void Describe(uint64_t ordinal, uint32_t fingerprint, const std::string& text) = 0;
  /// This rank gave up; the job is to fail everywhere.
  virtual void Abort(const Error& error) = 0;
  virtual void Report(const CommStats& stats) = 0;
};

}  // namespace mlnet::worker
