// SPDX-License-Identifier: Apache-2.0
// Who of a running job has fallen silent, from what this host's kernel last heard. Pure; the daemon reads the kernel.
// Ranks ping by every tree, a node passes the ping of a child up as its own, the root answers: so each node sees that its
// children live, each host that the way to its root does. No daemon takes part, so one may be restarted meanwhile.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/model.h"
#include "control/tree.h"

namespace mlnet::control {

inline constexpr uint32_t kFirstContactMs = 5'000;  // the first packets of a path wait for neighbour discovery, which asks once a second
inline constexpr uint32_t kPingsPerLoss = 8;  // so many are lost in a row before somebody is

/// What the kernel of this host last heard in one tree. Times are CLOCK_MONOTONIC of this host; 0: never.
struct TreeSigns {
  std::map<size_t, uint64_t> children;  // by child of the node here: its last ping or contribution
  std::optional<uint64_t> answer_ns;    // from the root; nullopt where this host is it, or has no rank of the job
};

/// What this host knows of one job.
struct Signs {
  std::vector<TreeSigns> trees;  // of the plan
  std::set<int> stopped;         // its ranks whose processes are, by a signal or a debugger: they ask nobody, so nobody answers
};

struct Loss {
  Error error;
  std::vector<int> ranks;
  std::string host{};     // of the node that is silent, where no rank is on it
  bool is_root = false;   // `host` is a root: whoever does not hear it may be cut off itself
  bool is_alone = false;  // the host that looks hears nobody at all: most likely it is the one that is cut off
};

/// Judges one job on one host.
class Liveness {
 public:
  /// `now_ns`: from when on it may be judged.
  Liveness(uint64_t incarnation, uint64_t now_ns) : incarnation_(incarnation), since_ns_(now_ns), looked_ns_(now_ns), asking_since_ns_(now_ns) {}

  uint64_t incarnation() const { return incarnation_; }
  /// Whom `host` has not heard of for spec.lost_ms although it is a member that pings.
  /// A look that comes late, because this host itself stood still, starts all waits anew.
  std::optional<Loss> Look(const JobView& view, const std::string& host, const Signs& signs, uint64_t now_ns);

 private:
  std::optional<Loss> LostStopped(const JobView& view, const Signs& signs, uint64_t now_ns);
  std::optional<Loss> LostChild(const JobView& view, const std::string& host, size_t tree, const TreeSigns& signs, uint64_t now_ns) const;
  bool HearsOthers(const JobView& view, const std::vector<TreeChild>& children, const TreeSigns& signs, uint64_t now_ns) const;
  bool IsSilent(uint64_t last_ns, uint64_t heard_ns, uint64_t now_ns, uint32_t lost_ms) const;
  std::optional<Loss> LostRoot(const JobView& view, const std::string& host, size_t tree, const TreeSigns& signs, uint64_t now_ns) const;

  const uint64_t incarnation_;
  uint64_t since_ns_;
  uint64_t looked_ns_;
  uint64_t asking_since_ns_;                  // some rank of this host runs, and pings
  std::map<int, uint64_t> stopped_since_ns_;  // by rank of this host
};

}  // namespace mlnet::control
