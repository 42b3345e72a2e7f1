// SPDX-License-Identifier: Apache-2.0
// The rows of EtcdStore in etcd's answers: values, or an error that names the key. Pure: what etcd holds may be anybody's work.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/etcd_json.h"
#include "daemon/store.h"

namespace mlnet::daemon::etcd {

/// PREFIX/index/NAME.
struct Index {
  uint16_t job_id = 0;
  uint64_t over_ms = 0;
  bool is_kept = false;
  int64_t mod_revision = 0;
};

/// PREFIX/epochs/ID.
struct Epoch {
  int64_t last = 0;
  int64_t mod_revision = 0;
  bool is_given = false;  // by this transaction
};

Result<control::JobView> JobIn(const KeyValue& kv);
/// `heartbeats`: operation that read the beats, `hosts`: the one that read the hosts.
Result<std::vector<control::HostRecord>> HostsIn(const Json& answer, size_t hosts, size_t heartbeats);
/// An answer to {generation, hosts, beats, jobs ...}. Jobs whose keys do not begin with `open` are left out unless they are
/// named in `only_over`; null: all are wanted.
Result<Snapshot> SnapshotIn(const Json& answer, const std::string& open, const std::set<std::string>* only_over);
Result<std::map<std::string, Index>> IndexIn(const std::vector<KeyValue>& kvs);
Result<std::map<int64_t, Epoch>> EpochsIn(const std::vector<KeyValue>& kvs);
/// The rows below `folder`, which operation `index` read.
Result<std::vector<Store::Counters>> CountersIn(const Json& answer, size_t index, const std::string& folder);

}  // namespace mlnet::daemon::etcd
