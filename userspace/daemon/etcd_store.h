// SPDX-License-Identifier: Apache-2.0
// The store as an etcd cluster, for daemons of several machines. A transaction is optimistic: read, change, write if
// nobody wrote meanwhile, else again.
//
//   PREFIX/schema                       1
//   PREFIX/generation                   its revision moves with hosts and jobs
//   PREFIX/generation.probe             written to see whether an outage is over
//   PREFIX/hosts/HOST                   control::HostRecord                        } bound to the host's lease: gone some
//   PREFIX/beats/HOST                   its last heartbeat, wall clock, ms         } minutes after a host that went silent
//   PREFIX/writers/ID                   number of a daemon's last decision         }
//   PREFIX/jobs/open/NAME, /over/NAME   control::JobView, in one of the two
//   PREFIX/index/NAME                   of each job what is asked of all at once: {job_id, over_ms, kept}
//   PREFIX/lives/NAME                   incarnation of the job; guards its counters
//   PREFIX/epochs/ID                    last epoch given; survives the jobs
//   PREFIX/counters/NAME/INCARNATION/SOURCE
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/etcd_client.h"
#include "daemon/etcd_records.h"
#include "daemon/etcd_watch.h"
#include "daemon/store.h"
#include "daemon/store_health.h"

namespace mlnet::daemon {

class EtcdStore final : public Store {
 public:
  /// Waits for etcd for at most `patience`.
  static Result<std::unique_ptr<Store>> Open(const control::EtcdConfig& config, const Retention& retention = {},
                                             std::chrono::milliseconds patience = std::chrono::seconds(10));

  Result<bool> Changed(const Snapshot& since) override;
  Result<Snapshot> Load() override;
  Result<Snapshot> LoadOpen(const std::set<std::string>& also) override;
  Result<std::vector<control::HostRecord>> LoadHosts() override;
  Result<void> UpdateJob(const std::string& name, const Change& change) override;
  Result<control::Numbering> TakeNumbers(uint16_t wanted) override;
  Result<void> SaveHost(const control::HostRecord& host) override;
  Result<void> Beat(const std::string& host, uint64_t now_ms) override;
  Result<void> SaveCounters(const std::string& job, uint64_t incarnation, const std::vector<Counters>& counters) override;
  Result<std::vector<std::vector<Counters>>> LoadCounters(const std::vector<Life>& lives) override;
  std::string Outage() const override;
  int wake_fd() const override { return watch_->wake_fd(); }

 private:
  using Json = control::Json;

  /// What UpdateJob has read, and TakeNumbers wants to have written along with the job.
  struct Decision {
    std::string name;
    std::optional<control::JobView> before;
    int64_t open_revision = 0, over_revision = 0, writer_revision = 0;
    bool is_read = false;  // the two below
    std::map<int64_t, etcd::Epoch> epochs;
    std::map<std::string, etcd::Index> index;
    std::optional<Error> problem;  // the store's, met while `change` ran
  };
  enum class Written { kYes, kConflict };

  EtcdStore(const etcd::Options& options, const Retention& retention);
  Result<void> SetUp(std::chrono::milliseconds patience);
  Result<void> TakeLease();
  Result<void> KeepLease();
  std::string Key(const std::string& rest) const { return prefix_ + rest; }

  Error NoAnswer() const;
  /// Fails at once during an outage, and begins one where no endpoint answers.
  Result<Json> Call(const std::string& path, const Json& body);
  /// A transaction that may have written with the lease: takes a new one where it is gone, and calls `make` again.
  Result<Json> Commit(const std::function<Json()>& make);

  /// An outage is nobody's silence.
  std::vector<control::HostRecord> Graced(std::vector<control::HostRecord> hosts) const;
  Result<Snapshot> ReadSnapshot(const Json& answer, const std::set<std::string>* only_over);
  /// True where an earlier attempt to write `decision`, whose answer was lost, was carried out after all.
  Result<bool> ReadDecision(Decision& decision);
  Result<Written> Write(const Decision& decision, const std::optional<control::JobView>& after, bool has_changed);
  void AddJob(const Decision& decision, const control::JobView& after, std::vector<Json>& operations) const;
  void AddRemoval(const std::string& name, std::vector<Json>& operations) const;
  Result<void> ReadNumbers(Decision& decision);
  void DropOld();
  std::string CounterFolder(const Life& life) const;

  const std::string prefix_;
  std::string addresses_;
  const Retention retention_;
  StoreHealth health_;
  etcd::Client client_;
  std::unique_ptr<etcd::Watch> watch_;
  const std::string writer_;    // PREFIX/writers/ID of this object
  uint64_t num_decisions_ = 0;  // number of the last one that was tried to be written
  int64_t lease_ = 0;
  std::chrono::steady_clock::time_point next_keep_;
  std::optional<control::HostRecord> host_;  // as last saved: written again when the lease was lost
  Decision* deciding_ = nullptr;
};

}  // namespace mlnet::daemon
