// SPDX-License-Identifier: Apache-2.0
// A call under way, and what of it travels in one lane: all of it, a part, or a repair.
#pragma once

#include <memory>
#include <string>

#include "completion.h"
#include "fingerprint.h"
#include "traffic/traffic.h"

namespace mlnet::worker {

/// What the parts of a call share; the caller's handle is done when the last part is.
struct Call {
  CollectiveSpec spec;
  std::shared_ptr<WorkState> work;
  uint64_t ordinal = 0;  // position among the calls of its class
  uint32_t fingerprint = 0;
  uint64_t called_ns = 0;
  uint64_t deadline_ns = 0;
  size_t parts_left = 0;
  bool is_described = false;  // a MISMATCH was reported

  /// "all_reduce #12 float32 sum count=1000".
  std::string Describe() const {
    const std::string text = DescribeSpec(spec);
    const size_t space = text.find(' ');
    const std::string rest = space == std::string::npos ? "" : text.substr(space);
    return text.substr(0, space) + " #" + std::to_string(ordinal) + rest;
  }
};

struct Collective {
  std::shared_ptr<Call> call;
  std::unique_ptr<Traffic> traffic;
  uint32_t fingerprint = 0;
  uint64_t first_seq = 0;
  std::shared_ptr<Collective> parent;  // of a repair: what it repairs
  size_t repairs_left = 0;
  uint64_t bytes_per_packet = 0;  // of the caller's, on average; 0 for a repair

  uint64_t next = 0;       // first packet not sent yet; probes count as packets here
  uint64_t answered = 0;   // packets whose results are consumed
  uint64_t in_flight = 0;  // sent, not answered

  uint64_t sent_first_ns = 0, sent_last_ns = 0;  // new packets, for the timeline

  bool IsSent() const { return next == traffic->packets(); }
  bool IsAnswered() const { return answered == traffic->packets(); }
  std::string Describe() const { return call->Describe() + (parent ? " (fix-up)" : ""); }
};

}  // namespace mlnet::worker
