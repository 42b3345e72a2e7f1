// SPDX-License-Identifier: Apache-2.0
#include "daemon/etcd_records.h"

#include <algorithm>
#include <limits>

#include "control/record.h"
#include "rpc/message.h"

namespace mlnet::daemon::etcd {

using control::HostRecord;
using control::JobView;

namespace {

tl::unexpected<Error> Unreadable(const KeyValue& kv, const std::string& why) {
  return Err(ErrorCode::kProtocol, "store: unreadable record " + kv.key + ": " + why, "delete that key");
}

}  // namespace

Result<JobView> JobIn(const KeyValue& kv) {
  auto view = control::ReadJobView(kv.value);
  if (!view) return Unreadable(kv, view.error().message);
  if (view->job.name != AfterSlash(kv.key)) return Unreadable(kv, "it is of '" + view->job.name + "'");
  return view;
}

Result<std::vector<HostRecord>> HostsIn(const Json& answer, size_t hosts, size_t heartbeats) {
  std::map<std::string, uint64_t> beats;
  for (const KeyValue& kv : ReadBy(answer, heartbeats)) {
    const auto ms = ToNumber(kv.value, 0, std::numeric_limits<int64_t>::max());
    if (!ms) return Unreadable(kv, "not a time");
    beats[AfterSlash(kv.key)] = static_cast<uint64_t>(*ms);
  }
  std::vector<HostRecord> all;
  for (const KeyValue& kv : ReadBy(answer, hosts)) {
    auto host = control::ReadHostRecord(kv.value);
    if (!host) return Unreadable(kv, host.error().message);
    if (host->host != AfterSlash(kv.key)) return Unreadable(kv, "it is of '" + host->host + "'");
    host->heartbeat_ms = beats[host->host];
    all.push_back(std::move(*host));
  }
  return all;
}

Result<Snapshot> SnapshotIn(const Json& answer, const std::string& open, const std::set<std::string>* only_over) {
  Snapshot snapshot;
  const auto generation = ReadBy(answer, 0);
  snapshot.generation = generation.empty() ? 0 : generation[0].mod_revision;
  auto hosts = HostsIn(answer, 1, 2);
  if (!hosts) return tl::make_unexpected(hosts.error());
  snapshot.hosts = std::move(*hosts);
  for (size_t i = 3; i < NumResponses(answer); ++i) {
    for (const KeyValue& kv : ReadBy(answer, i)) {
      if (only_over != nullptr && !kv.key.starts_with(open) && !only_over->contains(AfterSlash(kv.key))) continue;
      auto view = JobIn(kv);
      if (!view) return tl::make_unexpected(view.error());
      snapshot.jobs.push_back(std::move(*view));
    }
  }
  std::sort(snapshot.jobs.begin(), snapshot.jobs.end(), [](const auto& a, const auto& b) { return a.job.name < b.job.name; });
  return snapshot;
}

Result<std::map<std::string, Index>> IndexIn(const std::vector<KeyValue>& kvs) {
  std::map<std::string, Index> index;
  for (const KeyValue& kv : kvs) {
    const auto row = rpc::ParseJson(kv.value);
    if (!row || !row->is_object()) return Unreadable(kv, "not an object");
    const auto job_id = rpc::Get<uint16_t>(*row, "job_id");
    const auto over_ms = rpc::Get<uint64_t>(*row, "over_ms");
    const auto is_kept = rpc::Get<bool>(*row, "kept");
    if (!job_id || !over_ms || !is_kept) return Unreadable(kv, (!job_id ? job_id.error() : !over_ms ? over_ms.error() : is_kept.error()).message);
    index[AfterSlash(kv.key)] = {*job_id, *over_ms, *is_kept, kv.mod_revision};
  }
  return index;
}

Result<std::map<int64_t, Epoch>> EpochsIn(const std::vector<KeyValue>& kvs) {
  std::map<int64_t, Epoch> epochs;
  for (const KeyValue& kv : kvs) {
    // An epoch that is taken for less than it was would be given a second time.
    const auto id = ToNumber(AfterSlash(kv.key), 1, kJobIdMax), last = ToNumber(kv.value, 0, kEpochMax);
    if (!id || !last) return Unreadable(kv, "not an epoch");
    epochs[*id] = {*last, kv.mod_revision, false};
  }
  return epochs;
}

Result<std::vector<Store::Counters>> CountersIn(const Json& answer, size_t index, const std::string& folder) {
  std::vector<Store::Counters> all;
  for (const KeyValue& kv : ReadBy(answer, index)) {
    if (!kv.key.starts_with(folder)) return Unreadable(kv, "it is not of " + folder);
    auto body = control::ReadCounters(kv.value);
    if (!body) return Unreadable(kv, body.error().message);
    all.push_back({kv.key.substr(folder.size()), std::move(*body)});
  }
  return all;
}

}  // namespace mlnet::daemon::etcd
