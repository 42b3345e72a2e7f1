// SPDX-License-Identifier: Apache-2.0
// What WIRE_FORMAT.md and the rules say of a packet, apart from the program: whether it may change anything, what the sums are
// that it adds to, and whether what leaves is a packet.
#pragma once

#include <map>
#include <optional>

#include "fuzz/datapath/world.h"

namespace mlnet::fuzz {

/// The packet as far as its bytes tell.
struct Reading {
  bool is_ours = false;              // UDP to our port
  std::optional<test::Parsed> whole;  // its version and lengths are right
  bool is_ipv6 = false;
  Bytes bytes;  // of the whole
};
Reading Read(const Bytes& frame);

/// Whether the program may act on it: a member's, or a node's above, of the epoch, undamaged, with the tag that the job's key gives it.
bool IsGenuine(const World& world, const Reading& reading);

/// How a packet ends whose tag is missing or wrong, whatever else is; nothing: it has the right one, or another reason comes first.
std::optional<mlnet_verdict> RefusalOfTag(const World& world, const Reading& reading);

/// Sums as the definition of each operation makes them, by slot and set.
class Sums {
 public:
  struct Set {
    uint64_t seq = 0;
    uint16_t epoch = 0;
    uint64_t contributed = 0;
    uint64_t weight = 0;
    std::vector<uint64_t> words;  // empty: nobody had any
    uint8_t or_flags = 0;
    std::array<uint8_t, MLNET_EXPS_BYTES> exps{};
  };
  void Clear() { sets_.clear(); }
  /// A contribution that the program says it took. What the slot holds now must be the sum.
  void Add(World& world, const test::Frame& frame);
  /// Null: nothing is known of it.
  const Set* Find(const test::Frame& frame) const;

 private:
  using Place = std::tuple<uint16_t, uint8_t, uint8_t, uint64_t>;  // job, tree, pool, slot and set
  static Place PlaceOf(const World& world, const test::Frame& frame);
  std::map<Place, Set> sets_;
};

/// A frame that leaves by the wire must be a packet of ours with right checks and tag, and no longer than what came.
test::Parsed CheckOutgoing(const Bytes& frame, size_t came_bytes);

}  // namespace mlnet::fuzz
