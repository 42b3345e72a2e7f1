// SPDX-License-Identifier: Apache-2.0
// A collective under way: the call, its packets, and how far they are. Owned by one lane.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "completion.h"
#include "fingerprint.h"
#include "partition.h"
#include "quantize.h"

namespace mlnet::worker {

struct Collective {
  CollectiveSpec spec;
  Plan plan;
  uint32_t fingerprint = 0;
  uint64_t ordinal = 0;  // position among the collectives of its class
  uint64_t first_seq = 0;
  uint64_t deadline_ns = 0;
  std::shared_ptr<WorkState> work;

  uint64_t next = 0;       // first packet not sent yet; probes count as packets here
  uint64_t answered = 0;   // packets whose results are consumed
  uint64_t in_flight = 0;  // sent, not answered
  bool is_non_finite = false;
  bool is_described = false;         // a MISMATCH was reported
  std::vector<PacketExps> common;    // merged exponents, by data packet mod P
  std::vector<bool> probe_answered;  // by probe

  bool IsProbe(uint64_t packet) const { return packet < plan.probes; }
  bool IsSent() const { return next == plan.total(); }
  bool IsAnswered() const { return answered == plan.total(); }
  PacketExps& CommonOf(uint64_t data_packet) { return common[data_packet % common.size()]; }
  const PacketExps& CommonOf(uint64_t data_packet) const { return common[data_packet % common.size()]; }

  /// "all_reduce #12 float32 sum count=1000".
  std::string Describe() const {
    const std::string text = DescribeSpec(spec);
    const size_t space = text.find(' ');
    const std::string rest = space == std::string::npos ? "" : text.substr(space);
    return text.substr(0, space) + " #" + std::to_string(ordinal) + rest;
  }
};

}  // namespace mlnet::worker
