// SPDX-License-Identifier: Apache-2.0
// The store that the daemons share: hosts, jobs, counters, and which (job id, epoch) pairs were used.
// SQLite in WAL mode; a decision is one write transaction, so two daemons never decide against each other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
};

class Store {
 public:
  static Result<Store> Open(const std::string& path);

  /// Whether hosts or jobs may differ from the last Load.
  Result<bool> Changed();
  Result<Snapshot> Load();

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

  /// Counters of one source ("rank 3", "host w1") of a job's incarnation; not a change for Changed.
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
  explicit Store(sqlite3* db) : db_(db) {}
  Result<void> Transact(const std::function<Result<void>()>& body);
  Result<void> Touch();
  Result<int64_t> ReadInteger(const char* sql);

  std::unique_ptr<sqlite3, Close> db_;
  int64_t data_version_ = -1;  // changes when another connection writes
  int64_t generation_ = -1;    // of the last Load
  bool wrote_ = true;          // this connection changed something since
};

}  // namespace mlnet::daemon
