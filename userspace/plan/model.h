// SPDX-License-Identifier: Apache-2.0
// What the planner is told and what it answers: plain values. DESIGN.md has the model behind them.
// New here? planner.h is the entry; site.h resolves the input, trees.h builds, cost.h predicts, weights.h shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mlnet/error.h"
#include "mlnet/wire.h"

namespace mlnet::plan {

/// Rates are in bit/s of Ethernet frames; 0: no limit that anybody knows of.
struct Host {
  std::string name;
  std::string rack;  // empty: plugged into the core itself
  double up_bps = 0;
  double down_bps = 0;
  bool can_aggregate = true;
};

struct Rack {
  std::string name;
  double up_bps = 0;  // towards the core; 0: from Cluster::oversubscription
  double down_bps = 0;
};

struct Cluster {
  std::vector<Host> hosts;
  std::vector<Rack> racks;      // only those with rates of their own need to be named
  double oversubscription = 0;  // 4: a rack's uplink is a quarter of its hosts' links; 0: the core never blocks
};

/// kPush: the sum stays at the root (a parameter server); roots are spare hosts then.
enum class Traffic { kAllReduce, kPush };

struct Job {
  std::vector<std::string> host_of_rank;  // its size is the world size
  uint64_t bytes = 0;                     // of the tensor as float32
  int lane_bits = 32;                     // on the wire: 32, 16 or 8
  bool multicast = true;                  // results: one packet per node, else one per child
  Traffic traffic = Traffic::kAllReduce;
};

enum class Shape { kStar, kShards, kWorkers, kRack, kRackShards, kBinary, kDegree };

/// What the machine and its parts can do; the defaults are those of the packet format.
struct Settings {
  size_t children_max = MLNET_CHILDREN_MAX;  // of one node: ranks of its own host and lower nodes
  size_t trees_max = 64;                     // of a plan; each costs every host a pool
  size_t degree = 4;                         // of Shape::kDegree
  double payload_bytes = MLNET_BLOCKS_MTU1500 * MLNET_BLOCK_BYTES;
  double frame_bytes = 1514;
  double level_s = 20e-6;   // one hop: host to host and through the program there
  double round_trips = 2;   // the probes' and the data's own
  double ring_overhead = 1514.0 / 1448;  // TCP's frame bytes per payload byte, for the ring that is compared with
};

/// One host of a tree. It sums the ranks it runs, if any, and its children, and sends to its parent.
struct Node {
  size_t host = 0;    // index into Cluster::hosts
  int parent = -1;    // index into Tree::nodes; -1: the root
  std::vector<size_t> children{};
};

struct Tree {
  std::vector<Node> nodes;  // nodes[0] is the root
  double weight = 1;        // share of the chunks
};

struct LinkLoad {
  std::string name;  // "w1 up", "rack r1 down"
  double bytes = 0;  // frame bytes per job
  double rate_bps = 0;
  double seconds = 0;
};

struct Prediction {
  double seconds = 0;  // bandwidth_s + latency_s
  double bandwidth_s = 0;
  double latency_s = 0;
  std::string limiting_link;  // empty: no link has a rate
  int levels = 0;             // sums on the longest way from a rank to the root
  double core_bytes = 0;      // what all racks together send into the core
  std::vector<LinkLoad> links;
};

struct Candidate {
  Shape shape = Shape::kStar;
  std::string roots;  // for people: "a1", "4 worker hosts"
  std::vector<Tree> trees;  // those with a weight above 0
  Prediction predicted;
  std::string why_not;  // not empty: this cluster cannot have the shape, and nothing else is set

  bool is_possible() const { return why_not.empty(); }
};

/// The ring all-reduce of float32 that mlnet is measured against.
struct Ring {
  std::string order;
  Prediction predicted;
};

struct Plan {
  std::vector<Candidate> candidates;  // one per shape
  size_t chosen = 0;
  std::string reason;  // one sentence
  double bound_s = 0;  // no plan can be faster: every worker host sends and gets one contribution
  std::vector<Ring> rings;

  const Candidate& choice() const { return candidates[chosen]; }
};

}  // namespace mlnet::plan
