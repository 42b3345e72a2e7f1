// SPDX-License-Identifier: Apache-2.0
// The store that the daemons share: hosts, jobs, counters, and which (job id, epoch) pairs were used.
// A decision is one write transaction, so two daemons never decide against each other.
//   sqlite_store.h  a file, for daemons of one machine and the lab
//   etcd_store.h    a cluster, for daemons of several machines
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/config.h"
#include "control/job.h"
#include "control/model.h"
#include "control/plan.h"
#include "mlnet/error.h"
#include "rpc/message.h"

namespace mlnet::daemon {

// Both are 16 bits wide in every packet.
inline constexpr int64_t kEpochMax = 65535;
inline constexpr int64_t kJobIdMax = 65535;

struct Snapshot {
  std::vector<control::HostRecord> hosts;  // by name
  std::vector<control::JobView> jobs;      // by name, as they are loaded
  int64_t generation = -1;                 // of the store when this was read; -1: never
};

/// Which ended jobs are kept for operators to look at: the latest ones, and all that ended just now, so that every
/// daemon and every rank that comes late still finds out why. Declared jobs stay, and those with ranks connected.
struct Retention {
  uint32_t num_jobs = 32;
  uint32_t age_ms = 60'000;
};

class Store {
 public:
  virtual ~Store() = default;

  /// Whether hosts or jobs may differ from `since`. Asking changes nothing, and neither does loading: what was
  /// seen is known by the snapshot that one keeps.
  virtual Result<bool> Changed(const Snapshot& since) = 0;
  /// All hosts and jobs.
  virtual Result<Snapshot> Load() = 0;
  /// All hosts; of the jobs only those that are not over, and the ones named in `also`.
  virtual Result<Snapshot> LoadOpen(const std::set<std::string>& also) = 0;
  virtual Result<std::vector<control::HostRecord>> LoadHosts() = 0;

  /// One write transaction on one job. `change` gets the job, or nothing when there is none, and leaves
  /// what is to be kept: a job to write, or nothing to delete it. What it gives is given back; the store
  /// is written only where the job differs afterwards.
  /// It may be called again with a newer job, when another daemon wrote it meanwhile: only the last call counts.
  using Change = std::function<Result<void>(std::optional<control::JobView>&)>;
  virtual Result<void> UpdateJob(const std::string& name, const Change& change) = 0;

  /// A (job id, epoch) pair that was never used. `wanted`: this id if it has epochs left; 0: any free one.
  /// REQUIRES: called from within a Change.
  virtual Result<control::Numbering> TakeNumbers(uint16_t wanted) = 0;

  virtual Result<void> SaveHost(const control::HostRecord& host) = 0;
  virtual Result<void> Beat(const std::string& host, uint64_t now_ms) = 0;

  /// Counters of one source ("rank 3", "host w1") of a job's incarnation; not a change for Changed. They go with
  /// the incarnation, and what comes in for one that is gone is dropped.
  struct Counters {
    std::string source;
    control::Json body;
  };
  virtual Result<void> SaveCounters(const std::string& job, uint64_t incarnation, const std::vector<Counters>& counters) = 0;
  /// Of each of these incarnations, in their order. One call for many: a store that is elsewhere answers all at once. Where one's
  /// cannot be read it has none; the others have theirs.
  struct Life {
    std::string job;
    uint64_t incarnation = 0;
  };
  virtual Result<std::vector<std::vector<Counters>>> LoadCounters(const std::vector<Life>& lives) = 0;

  /// Where it is and why it does not answer at present; empty: it does. While it does not, all calls fail at once, with
  /// an error that IsNoAnswer.
  virtual std::string Outage() const { return ""; }
  /// Readable when there may be a change, or an outage began or ended, until Changed is called; -1: ask from time to time.
  virtual int wake_fd() const { return -1; }
};

/// Of a store that is elsewhere: it did not answer, and may or may not have done what it was asked to.
inline constexpr const char* kNoAnswer = "no answer from the store at ";
inline bool IsNoAnswer(const Error& error) { return error.code == ErrorCode::kUnavailable && error.message.starts_with(kNoAnswer); }

/// The one that the configuration names.
Result<std::unique_ptr<Store>> OpenStore(const control::Config& config);

/// As it is kept, "" for none: two are the same where their texts are.
inline std::string ToText(const std::optional<control::JobView>& view) { return view ? rpc::Dump(control::Json(*view)) : ""; }
/// Nothing is left to be done for it: the loop need not look at it. A deleted one is still to be removed.
inline bool IsOver(const control::JobView& view) { return control::HasEnded(view.job) && !view.job.deleted; }
/// Not dropped by Retention.
inline bool IsKept(const control::JobView& view) { return view.job.declared || control::IsConnected(view); }

}  // namespace mlnet::daemon
