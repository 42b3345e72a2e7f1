// SPDX-License-Identifier: Apache-2.0
// The jobs that are installed in this host's maps, and which ids and ranges each one holds.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/liveness.h"
#include "control/model.h"
#include "control/node.h"
#include "control/priority.h"
#include "daemon/holding.h"
#include "daemon/ifaces.h"
#include "daemon/multicast.h"
#include "datapath/host_job.h"
#include "datapath/program.h"

namespace mlnet::daemon {

struct LocalJob {
  uint64_t incarnation = 0;
  control::Plan plan;
  std::vector<int> ranks;  // local index -> rank
  control::Marks marks{};  // of its packets
  std::shared_ptr<const mlnet_key> key;  // null: its packets have no tag
  uint32_t uid = 0;        // whose processes may send for it from here
  std::shared_ptr<Holding> holding;
  std::vector<Membership> memberships;  // of each NIC that results come in by
  bool is_multicast = false;
  bool is_traced = false;       // the program tells of each sum that is complete here
  uint32_t multicast_seen = 0;  // bit per tree: a probe of its root came in by the group
  std::vector<uint64_t> answered_ns;  // by tree: when something last came from its root, CLOCK_MONOTONIC
  std::vector<std::optional<uint64_t>> num_answers;  // by tree: results and replies, as last looked at
  uint64_t told_ms = 0;         // when the store was last told that all had
  std::unique_ptr<datapath::HostJob> kernel;  // destroyed first: nothing of it may be given away before
};

class LocalJobs {
 public:
  LocalJobs(const datapath::Program& program, const Ifaces& ifaces, std::string host);

  /// kUnavailable names what the host has not enough of. `uid`: of its ranks here, or MLNET_UID_ANY.
  Result<void> Install(const control::JobView& view, const control::Marks& marks, uint32_t uid);
  /// The job as an earlier daemon installed it here, if its table entry is the one that this plan makes.
  Result<void> TakeOver(const control::JobView& view);
  /// Removes what an earlier daemon left in the maps and no job here has.
  void RemoveLeftovers();
  /// What leaves from now on is marked so.
  void Mark(const std::string& name, const control::Marks& marks);
  void Uninstall(const std::string& name);

  LocalJob* Find(const std::string& name);
  std::map<std::string, LocalJob>& all() { return jobs_; }
  bool empty() const { return jobs_.empty(); }

  /// Nodes above this host's whose link address the kernel does not know yet.
  std::vector<std::string> UnknownHops(const control::Plan& plan) const;
  /// Follows changes of the link addresses of nodes above.
  void RefreshHops();
  /// A pool's first packet came in.
  void OpenPool(const std::string& name, LocalJob& job, size_t tree, uint8_t class_stream) const;
  /// Results go by multicast from here on.
  Result<void> UseMulticast(LocalJob& job);
  Result<void> SetTracing(LocalJob& job, bool is_on);

  /// What the kernel last heard of a job's members, by tree.
  std::vector<control::TreeSigns> Signs(LocalJob& job, uint64_t now_ns) const;
  /// Counters of one job on this host; lag per child where it sums.
  control::Json Counters(const LocalJob& job) const;
  /// Counters of this host since it started, whatever the job.
  mlnet_stats Total() const;
  uint32_t SlotsFree() const;

 private:
  Result<std::shared_ptr<Holding>> Take(const control::Plan& plan) const;
  /// `ids`: as the job has them.
  Result<std::shared_ptr<Holding>> TakeThese(const control::Plan& plan, const control::HostIds& ids) const;
  LocalJob Begin(const control::JobView& view, std::shared_ptr<Holding> holding) const;
  void JoinGroup(const control::JobView& view, LocalJob& job) const;
  std::vector<mlnet_node> Nodes(const LocalJob& job) const;
  datapath::HostJobSpec SpecOf(const LocalJob& job) const;
  std::string AddressAbove(const control::Plan& plan, size_t tree) const;
  std::set<std::string> IfacesOfResults(const control::Plan& plan) const;
  mlnet_stats StatsOf(const LocalJob& job) const;
  void NoteAnswers(LocalJob& job, size_t tree, size_t node, uint64_t now_ns) const;
  control::Json TreeCounters(const LocalJob& job, size_t tree) const;

  const datapath::Program& program_;
  const Ifaces& ifaces_;
  std::string host_;
  std::shared_ptr<IdPools> pools_;
  std::map<std::string, LocalJob> jobs_;
  mlnet_stats retired_{};  // of jobs that are gone
};

/// {verdicts {NAME: {count, action, help}}, bytes_in, contributions, words_summed, results}.
control::Json StatsToJson(const mlnet_stats& stats);

}  // namespace mlnet::daemon
