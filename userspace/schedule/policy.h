// SPDX-License-Identifier: Apache-2.0
// What shapes the chunks and how many of them are under way.
// Agreed, the same on all ranks from the same task on, since it decides which collectives there are and in which
// class: partition_bytes, classes. A rank's own, since it only delays: credit_bytes, window_bytes.
#pragma once

#include <array>
#include <cstdint>

#include "schedule/class_map.h"

namespace mlnet::schedule {

/// The default is off: whole tensors, one class, no limit.
struct Policy {
  /// A chunk has at most so many bytes, but one block; 0: tensors stay whole. Not below 32 KiB where sums must keep
  /// their bits, since small ones are added in rank order (JoinOptions::small_bytes).
  uint64_t partition_bytes = 0;
  ClassMap classes{};
  /// A chunk starts while less than this is under way, or where nothing of its own or of a more urgent level is. So
  /// up to one chunk more than this, and one of each level. 0: no limit. One byte: one chunk at a time.
  uint64_t credit_bytes = 0;
  /// Beside the credit: a chunk starts while less than this of its level is under way. 0: no limit.
  std::array<uint64_t, kLevelsMax> window_bytes{};
  /// A chunk of a task that follows another may start when that chunk of the other has finished (P3's immediate broadcast;
  /// if both are cut alike), or else when all of them have.
  bool is_immediate = true;
};

/// P3: slices of 50,000 parameters, each of which goes back as soon as it is summed. It has no credit; what cannot be
/// overtaken there is what the socket holds, and that is kept short.
inline Policy P3Policy(const ClassMap& classes, uint64_t element_bytes = 4, uint64_t socket_bytes = 1 << 20) {
  return {.partition_bytes = 50000 * element_bytes, .classes = classes, .credit_bytes = socket_bytes};
}

/// ByteScheduler: its parameter server's sizes, 1 M and 4 M parameters of 4 bytes, until they are tuned (tuner.h).
inline Policy ByteSchedulerPolicy(const ClassMap& classes, uint64_t partition_bytes = 4 << 20,
                                  uint64_t credit_bytes = 16 << 20) {
  return {.partition_bytes = partition_bytes, .classes = classes, .credit_bytes = credit_bytes};
}

}  // namespace mlnet::schedule
