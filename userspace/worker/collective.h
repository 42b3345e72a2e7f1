// SPDX-License-Identifier: Apache-2.0
// A collective under way, or one repair of a collective: its packets, and how far they are.
#pragma once

#include <memory>
#include <string>

#include "completion.h"
#include "fingerprint.h"
#include "traffic/traffic.h"

namespace mlnet::worker {

struct Collective {
  CollectiveSpec spec;
  std::unique_ptr<Traffic> traffic;
  uint32_t fingerprint = 0;
  uint64_t ordinal = 0;  // position among the collectives of its class
  uint64_t first_seq = 0;
  uint64_t deadline_ns = 0;
  std::shared_ptr<WorkState> work;     // the caller's; a repair has its collective's
  std::shared_ptr<Collective> parent;  // of a repair: what it repairs
  size_t repairs_left = 0;

  uint64_t next = 0;       // first packet not sent yet; probes count as packets here
  uint64_t answered = 0;   // packets whose results are consumed
  uint64_t in_flight = 0;  // sent, not answered
  bool is_described = false;  // a MISMATCH was reported

  bool IsSent() const { return next == traffic->packets(); }
  bool IsAnswered() const { return answered == traffic->packets(); }

  /// "all_reduce #12 float32 sum count=1000".
  std::string Describe() const {
    const std::string text = DescribeSpec(spec);
    const size_t space = text.find(' ');
    const std::string rest = space == std::string::npos ? "" : text.substr(space);
    return text.substr(0, space) + " #" + std::to_string(ordinal) + rest + (parent ? " (fix-up)" : "");
  }
};

}  // namespace mlnet::worker
