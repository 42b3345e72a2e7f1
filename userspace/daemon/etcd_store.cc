// SPDX-License-Identifier: Apache-2.0
// Hosts, snapshots and counters; decisions are in etcd_decision.cc.
#include "daemon/etcd_store.h"

#include <poll.h>

#include <algorithm>
#include <random>

#include "base/clock.h"
#include "rpc/message.h"

namespace mlnet::daemon {

using control::HostRecord;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr const char* kEtcdSchema = "1";
// An hour-long outage of one host costs it only its rows, which it writes again; who is dead is told by heartbeats.
constexpr std::chrono::seconds kLeaseTtl{600};
constexpr std::chrono::seconds kKeepEvery{60};
// etcd takes 128 operations per transaction unless told otherwise.
constexpr size_t kOperationsMax = 100;
constexpr int kOpenPauseMs = 100;

std::string RandomId() {
  std::random_device random;
  return std::to_string(random()) + "-" + std::to_string(random());
}

}  // namespace

EtcdStore::EtcdStore(const etcd::Options& options, const Retention& retention)
    : prefix_(options.config.prefix + "/"), retention_(retention), client_(options), writer_(prefix_ + "writers/" + RandomId()) {
  for (const std::string& endpoint : options.config.endpoints) addresses_ += (addresses_.empty() ? "" : ", ") + endpoint;
}

Result<std::unique_ptr<Store>> EtcdStore::Open(const control::EtcdConfig& config, const Retention& retention, milliseconds patience) {
  auto options = etcd::Options::Read(config);
  if (!options) return tl::make_unexpected(options.error());
  std::unique_ptr<EtcdStore> store(new EtcdStore(*options, retention));
  if (auto ok = store->SetUp(patience); !ok) return tl::make_unexpected(ok.error());
  auto watch = etcd::Watch::Start(*options, store->Key("generation"), store->health_);
  if (!watch) return tl::make_unexpected(watch.error());
  store->watch_ = std::move(*watch);
  if (auto ok = store->TakeLease(); !ok) return tl::make_unexpected(ok.error());
  return store;
}

Result<void> EtcdStore::SetUp(milliseconds patience) {
  const auto deadline = steady_clock::now() + patience;
  const std::string schema = Key("schema");
  const Json txn = {{"compare", Json::array({etcd::IsAt(schema, 0)})},
                    {"success", Json::array({etcd::Put(schema, kEtcdSchema)})},
                    {"failure", Json::array({etcd::Get(schema)})}};
  auto answer = client_.Call("kv/txn", txn);
  while (!answer && etcd::IsOutage(answer.error())) {
    health_.MarkDown(answer.error().message, WallMs());
    if (steady_clock::now() >= deadline) return tl::make_unexpected(NoAnswer());
    ::poll(nullptr, 0, kOpenPauseMs);
    answer = client_.Call("kv/txn", txn);
  }
  if (!answer) return tl::make_unexpected(answer.error());
  health_.MarkUp(WallMs());
  const auto found = etcd::ReadBy(*answer, 0);
  if (!found.empty() && found[0].value != kEtcdSchema) {
    return Err(ErrorCode::kUnsupported, "store " + addresses_ + " has schema " + found[0].value + ", this mlnetd knows " + kEtcdSchema,
               "run the same version of mlnetd on all hosts");
  }
  return {};
}

std::string EtcdStore::Outage() const {
  const std::string why = health_.Outage();
  return why.empty() ? "" : addresses_ + ": " + why;
}

Error EtcdStore::NoAnswer() const {
  return Error{ErrorCode::kUnavailable, kNoAnswer + Outage(), "see etcd there, and [store] in mlnetd.toml"};
}

Result<control::Json> EtcdStore::Call(const std::string& path, const Json& body) {
  if (!health_.Outage().empty()) return tl::make_unexpected(NoAnswer());
  auto answer = client_.Call(path, body);
  if (answer || !etcd::IsOutage(answer.error())) return answer;
  watch_->SawOutage(answer.error());
  // By now the watching thread may have found that it is over: the call has failed all the same.
  return Err(ErrorCode::kUnavailable, kNoAnswer + addresses_ + ": " + answer.error().message, NoAnswer().hint);
}

Result<void> EtcdStore::TakeLease() {
  auto answer = Call("lease/grant", {{"TTL", std::to_string(kLeaseTtl.count())}});
  if (!answer) return tl::make_unexpected(answer.error());
  lease_ = etcd::Number(*answer, "ID");
  next_keep_ = steady_clock::now() + kKeepEvery;
  return {};
}

Result<void> EtcdStore::KeepLease() {
  if (steady_clock::now() < next_keep_) return {};
  next_keep_ = steady_clock::now() + kKeepEvery;
  // Whether it still exists is told by what is written with it.
  auto answer = Call("lease/keepalive", {{"ID", std::to_string(lease_)}});
  return answer ? Result<void>{} : tl::make_unexpected(answer.error());
}

Result<control::Json> EtcdStore::Commit(const std::function<Json()>& make) {
  auto answer = Call("kv/txn", make());
  if (answer || !etcd::IsLeaseGone(answer.error())) return answer;
  if (auto ok = TakeLease(); !ok) return tl::make_unexpected(ok.error());
  if (host_) {
    if (auto ok = SaveHost(HostRecord(*host_)); !ok) return tl::make_unexpected(ok.error());
  }
  return Call("kv/txn", make());
}

Result<bool> EtcdStore::Changed(const Snapshot& since) {
  watch_->ClearWake();
  if (!health_.Outage().empty()) return tl::make_unexpected(NoAnswer());
  return watch_->generation() != since.generation;
}

std::vector<HostRecord> EtcdStore::Graced(std::vector<HostRecord> hosts) const {
  for (HostRecord& host : hosts) host.heartbeat_ms = health_.Graced(host.heartbeat_ms);
  return hosts;
}

Result<std::vector<HostRecord>> EtcdStore::LoadHosts() {
  auto answer = Call("kv/txn", etcd::Txn({}, {etcd::GetAll(Key("hosts/")), etcd::GetAll(Key("beats/"))}));
  if (!answer) return tl::make_unexpected(answer.error());
  return etcd::HostsIn(*answer, 0, 1).map([this](auto hosts) { return Graced(std::move(hosts)); });
}

Result<Snapshot> EtcdStore::ReadSnapshot(const Json& answer, const std::set<std::string>* only_over) {
  auto snapshot = etcd::SnapshotIn(answer, Key("jobs/open/"), only_over);
  if (!snapshot) return snapshot;
  snapshot->hosts = Graced(std::move(snapshot->hosts));
  watch_->Saw(snapshot->generation);
  return snapshot;
}

Result<Snapshot> EtcdStore::Load() {
  auto answer = Call("kv/txn", etcd::Txn({}, {etcd::Get(Key("generation")), etcd::GetAll(Key("hosts/")),
                                                         etcd::GetAll(Key("beats/")), etcd::GetAll(Key("jobs/"))}));
  if (!answer) return tl::make_unexpected(answer.error());
  return ReadSnapshot(*answer, nullptr);
}

Result<Snapshot> EtcdStore::LoadOpen(const std::set<std::string>& also) {
  std::vector<Json> operations = {etcd::Get(Key("generation")), etcd::GetAll(Key("hosts/")), etcd::GetAll(Key("beats/")),
                     etcd::GetAll(Key("jobs/open/"))};
  if (also.size() + operations.size() > kOperationsMax) {
    operations.push_back(etcd::GetAll(Key("jobs/over/")));
  } else {
    for (const std::string& name : also) operations.push_back(etcd::Get(Key("jobs/over/" + name)));
  }
  auto answer = Call("kv/txn", etcd::Txn({}, std::move(operations)));
  if (!answer) return tl::make_unexpected(answer.error());
  return ReadSnapshot(*answer, &also);
}

Result<void> EtcdStore::SaveHost(const HostRecord& host) {
  host_ = host;
  const std::string hosts = Key("hosts/" + host.host), beats = Key("beats/" + host.host);
  // Only if the row is as it was just read: an attempt that is carried out late must not undo a later one.
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto read = Call("kv/txn", etcd::Txn({}, {etcd::Get(hosts)}));
    if (!read) return tl::make_unexpected(read.error());
    const auto found = etcd::ReadBy(*read, 0);
    auto answer = Commit([&] {
      return etcd::Txn({etcd::IsAt(hosts, found.empty() ? 0 : found[0].mod_revision)},
                       {etcd::Put(hosts, rpc::Dump(Json(host)), lease_), etcd::Put(beats, std::to_string(host.heartbeat_ms), lease_),
                        etcd::Put(Key("generation"), host.host)});
    });
    if (!answer) return tl::make_unexpected(answer.error());
    if (!etcd::IsTrue(*answer, "succeeded")) continue;
    watch_->Saw(etcd::Revision(*answer));
    return {};
  }
  return Err(ErrorCode::kConflict, "store: somebody else writes the record of host " + host.host, "give every mlnetd its own host name");
}

Result<void> EtcdStore::Beat(const std::string& host, uint64_t now_ms) {
  if (auto ok = KeepLease(); !ok) return ok;
  if (host_ && host_->host == host) host_->heartbeat_ms = now_ms;
  auto answer = Commit([&] {
    return etcd::Txn({etcd::Exists(Key("hosts/" + host))}, {etcd::Put(Key("beats/" + host), std::to_string(now_ms), lease_)});
  });
  if (!answer) return tl::make_unexpected(answer.error());
  // The lease ran out while this host could not reach etcd, or somebody cleared the store.
  if (!etcd::IsTrue(*answer, "succeeded") && host_ && host_->host == host) return SaveHost(HostRecord(*host_));
  return {};
}

Result<void> EtcdStore::SaveCounters(const std::string& job, uint64_t incarnation, const std::vector<Counters>& counters) {
  const std::string folder = CounterFolder({job, incarnation});
  for (size_t begin = 0; begin < counters.size(); begin += kOperationsMax) {
    std::vector<Json> puts;
    for (size_t i = begin; i < std::min(counters.size(), begin + kOperationsMax); ++i) {
      puts.push_back(etcd::Put(folder + counters[i].source, rpc::Dump(counters[i].body)));
    }
    auto answer = Call("kv/txn", etcd::Txn({etcd::Equals(Key("lives/" + job), std::to_string(incarnation))}, std::move(puts)));
    if (!answer) return tl::make_unexpected(answer.error());
  }
  return {};
}

std::string EtcdStore::CounterFolder(const Life& life) const {
  return Key("counters/" + life.job + "/" + std::to_string(life.incarnation) + "/");
}

Result<std::vector<std::vector<Store::Counters>>> EtcdStore::LoadCounters(const std::vector<Life>& lives) {
  std::vector<std::vector<Counters>> all;
  for (size_t begin = 0; begin < lives.size(); begin += kOperationsMax) {
    const size_t end = std::min(lives.size(), begin + kOperationsMax);
    std::vector<Json> gets;
    for (size_t i = begin; i < end; ++i) gets.push_back(etcd::GetAll(CounterFolder(lives[i])));
    auto answer = Call("kv/txn", etcd::Txn({}, std::move(gets)));
    if (!answer) return tl::make_unexpected(answer.error());
    for (size_t i = begin; i < end; ++i) {
      all.push_back(etcd::CountersIn(*answer, i - begin, CounterFolder(lives[i])).value_or(std::vector<Counters>{}));
    }
  }
  return all;
}

}  // namespace mlnet::daemon
