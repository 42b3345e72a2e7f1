// SPDX-License-Identifier: Apache-2.0
// The store that the daemons share: hosts, jobs, counters, and which (job id, epoch) pairs were used.
// SQLite in WAL mode; a decision is one write transaction, so two daemons never decide against each other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/model.h"
#include "control/plan.h"
#include "mlnet/error.h"

struct sqlite3;

namespace mlnet::daemon {

struct Snapshot {
  std::vector<control::HostRecord> hosts;  // by name
  std::vector<control::JobView> jobs;      // by name
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
  static Result<Store> Open(const std::string& path, const Retention& retention = {});

  /// Whether hosts or jobs may differ from `since`. Asking changes nothing, and neither does loading: what was
  /// seen is known by the snapshot that one keeps.
  Result<bool> Changed(const Snapshot& since);
  /// All hosts and jobs.
  Result<Snapshot> Load();
  /// All hosts; of the jobs only those that are not over, and the ones named in `also`.
  Result<Snapshot> LoadOpen(const std::set<std::string>& also);
  Result<std::vector<control::HostRecord>> LoadHosts();

  /// One write transaction on one job. `change` gets the job, or nothing when there is none, and leaves
  /// what is to be kept: a job to write, or nothing to delete it. What it gives is given back; the store
  /// is written only where the job differs afterwards.
  using Change = std::function<Result<void>(std::optional<control::JobView>&)>;
  Result<void> UpdateJob(const std::string& name, const Change& change);

  /// A (job id, epoch) pair that was never used. `wanted`: this id if it has epochs left; 0: any free one.
  /// REQUIRES: called from within a Change.
  Result<control::Numbering> TakeNumbers(uint16_t wanted);

  Result<void> SaveHost(const control::HostRecord& host);
  Result<void> Beat(const std::string& host, uint64_t now_ms);

  /// Counters of one source ("rank 3", "host w1") of a job's incarnation; not a change for Changed. They go with
  /// the incarnation, and what comes in for one that is gone is dropped.
  struct Counters {
    std::string source;
    control::Json body;
  };
  Result<void> SaveCounters(const std::string& job, uint64_t incarnation, const std::vector<Counters>& counters);
  Result<std::vector<Counters>> LoadCounters(const std::string& job, uint64_t incarnation);

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  Store(sqlite3* db, const Retention& retention) : db_(db), retention_(retention) {}
  Result<void> SetUp(const std::string& path);
  Result<void> Transact(const std::function<Result<void>()>& body);
  Result<Snapshot> Read(const std::function<Result<std::vector<control::JobView>>()>& jobs);
  Result<void> Write(const std::string& name, const std::optional<control::JobView>& view);
  Result<void> DropOld(int64_t now_ms);
  Result<void> Touch();
  Result<int64_t> ReadInteger(const char* sql);

  std::unique_ptr<sqlite3, Close> db_;
  Retention retention_;
};

}  // namespace mlnet::daemon
