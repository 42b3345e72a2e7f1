// SPDX-License-Identifier: Apache-2.0
// The transactions of EtcdStore. Each carries the number of the decision into the writer's own key, so that an attempt
// whose answer was lost is recognised whenever it is found to have been carried out: no change is made twice. That key
// must also be as it was read, so that an attempt that etcd carries out late, after a next decision, is void.
#include <poll.h>

#include <algorithm>
#include <random>

#include "base/clock.h"
#include "daemon/etcd_store.h"
#include "rpc/message.h"

namespace mlnet::daemon {

using control::JobView;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr milliseconds kDecideTimeout{5000};  // SQLite's busy timeout: only conflict after conflict takes so long
constexpr int kPauseMaxMs = 32;
constexpr size_t kDropsMax = 20;  // per transaction, four operations each

// Two that met part; the more often they meet the further.
void Pause(int attempt) {
  thread_local std::minstd_rand random{std::random_device{}()};
  ::poll(nullptr, 0, std::uniform_int_distribution<int>{0, std::min(kPauseMaxMs, 1 << std::min(attempt, 5))}(random));
}

}  // namespace

Result<void> EtcdStore::UpdateJob(const std::string& name, const Change& change) {
  const auto deadline = steady_clock::now() + kDecideTimeout;
  ++num_decisions_;
  Result<void> outcome;
  for (int attempt = 0; steady_clock::now() < deadline; ++attempt) {
    Decision decision;
    decision.name = name;
    auto is_done = ReadDecision(decision);
    if (!is_done) return tl::make_unexpected(is_done.error());
    if (attempt > 0 && *is_done) return outcome;
    std::optional<JobView> view = decision.before;
    deciding_ = &decision;
    outcome = change(view);
    deciding_ = nullptr;
    // What `change` made of a failure of the store is no decision.
    if (decision.problem) return tl::make_unexpected(*decision.problem);
    const bool has_changed = ToText(view) != ToText(decision.before);
    const bool has_numbers = std::any_of(decision.epochs.begin(), decision.epochs.end(), [](const auto& e) { return e.second.is_given; });
    if (!has_changed && !has_numbers) return outcome;
    auto written = Write(decision, view, has_changed);
    if (!written) return tl::make_unexpected(written.error());
    if (*written == Written::kYes) {
      if (has_changed && view && IsOver(*view)) DropOld();
      return outcome;
    }
    Pause(attempt);
  }
  return Err(ErrorCode::kTimeout, "store: job '" + name + "' is written by others all the time", "");
}

Result<bool> EtcdStore::ReadDecision(Decision& decision) {
  auto answer = Call("kv/txn", etcd::Txn({}, {etcd::Get(Key("jobs/open/" + decision.name)),
                                                         etcd::Get(Key("jobs/over/" + decision.name)), etcd::Get(writer_)}));
  if (!answer) return tl::make_unexpected(answer.error());
  for (const size_t i : {0u, 1u}) {
    const auto found = etcd::ReadBy(*answer, i);
    if (found.empty()) continue;
    (i == 0 ? decision.open_revision : decision.over_revision) = found[0].mod_revision;
    auto view = etcd::JobIn(found[0]);
    if (!view) return tl::make_unexpected(view.error());
    decision.before = std::move(*view);
  }
  const auto last = etcd::ReadBy(*answer, 2);
  decision.writer_revision = last.empty() ? 0 : last[0].mod_revision;
  return !last.empty() && last[0].value == std::to_string(num_decisions_);
}

void EtcdStore::AddRemoval(const std::string& name, std::vector<Json>& operations) const {
  for (const char* folder : {"jobs/open/", "jobs/over/", "index/", "lives/"}) operations.push_back(etcd::Delete(Key(folder + name)));
  operations.push_back(etcd::DeleteAll(Key("counters/" + name + "/")));
}

void EtcdStore::AddJob(const Decision& decision, const JobView& after, std::vector<Json>& operations) const {
  const std::string& name = decision.name;
  const bool is_over = IsOver(after);
  operations.push_back(etcd::Put(Key((is_over ? "jobs/over/" : "jobs/open/") + name), rpc::Dump(Json(after))));
  operations.push_back(etcd::Delete(Key((is_over ? "jobs/open/" : "jobs/over/") + name)));
  const Json index = {{"job_id", after.job.job_id}, {"over_ms", is_over ? WallMs() : 0}, {"kept", IsKept(after)}};
  operations.push_back(etcd::Put(Key("index/" + name), rpc::Dump(index)));
  if (decision.before && decision.before->job.incarnation == after.job.incarnation) return;
  operations.push_back(etcd::Put(Key("lives/" + name), std::to_string(after.job.incarnation)));
  operations.push_back(etcd::DeleteAll(Key("counters/" + name + "/")));
}

Result<EtcdStore::Written> EtcdStore::Write(const Decision& decision, const std::optional<JobView>& after, bool has_changed) {
  const auto make = [&] {
    std::vector<Json> conditions = {etcd::IsAt(Key("jobs/open/" + decision.name), decision.open_revision),
                                    etcd::IsAt(Key("jobs/over/" + decision.name), decision.over_revision),
                                    etcd::IsAt(writer_, decision.writer_revision)};
    std::vector<Json> operations = {etcd::Put(writer_, std::to_string(num_decisions_), lease_)};
    for (const auto& [id, epoch] : decision.epochs) {
      if (!epoch.is_given) continue;
      const std::string key = Key("epochs/" + std::to_string(id));
      conditions.push_back(etcd::IsAt(key, epoch.mod_revision));
      operations.push_back(etcd::Put(key, std::to_string(epoch.last)));
    }
    if (!has_changed) return etcd::Txn(std::move(conditions), std::move(operations));
    operations.push_back(etcd::Put(Key("generation"), decision.name));
    if (after) AddJob(decision, *after, operations);
    else AddRemoval(decision.name, operations);
    return etcd::Txn(std::move(conditions), std::move(operations));
  };
  auto answer = Commit(make);
  if (!answer) return tl::make_unexpected(answer.error());
  if (!etcd::IsTrue(*answer, "succeeded")) return Written::kConflict;
  if (has_changed) watch_->Saw(etcd::Revision(*answer));
  return Written::kYes;
}

Result<void> EtcdStore::ReadNumbers(Decision& decision) {
  auto answer = Call("kv/txn", etcd::Txn({}, {etcd::GetAll(Key("epochs/")), etcd::GetAll(Key("index/"))}));
  if (!answer) return tl::make_unexpected(answer.error());
  auto index = etcd::IndexIn(etcd::ReadBy(*answer, 1));
  if (!index) return tl::make_unexpected(index.error());
  auto epochs = etcd::EpochsIn(etcd::ReadBy(*answer, 0));
  if (!epochs) return tl::make_unexpected(epochs.error());
  decision.index = std::move(*index);
  decision.epochs = std::move(*epochs);
  decision.is_read = true;
  return {};
}

Result<control::Numbering> EtcdStore::TakeNumbers(uint16_t wanted) {
  Decision& decision = *deciding_;
  if (!decision.is_read) {
    if (auto ok = ReadNumbers(decision); !ok) {
      decision.problem = ok.error();
      return tl::make_unexpected(ok.error());
    }
  }
  auto& epochs = decision.epochs;
  int64_t id = wanted;
  if (wanted == 0 || (epochs.contains(id) && epochs[id].last >= kEpochMax)) {
    // The lowest id that no job holds and that has epochs left; an id never seen before counts as epoch 0.
    std::set<int64_t> held;
    for (const auto& [name, row] : decision.index) held.insert(row.job_id);
    const int64_t fresh = epochs.empty() ? 1 : epochs.rbegin()->first + 1;
    const auto free = std::find_if(epochs.begin(), epochs.end(), [&](const auto& e) {
      return e.second.last < kEpochMax && !held.contains(e.first);
    });
    id = free != epochs.end() ? free->first : fresh;
    if (id > kJobIdMax || (id == fresh && held.contains(id))) {
      return Err(ErrorCode::kConflict, "all job ids are taken", "delete jobs that have ended: mlnetctl job delete NAME");
    }
  }
  etcd::Epoch& epoch = epochs[id];
  epoch.is_given = true;
  return control::Numbering{static_cast<uint16_t>(id), static_cast<uint16_t>(++epoch.last)};
}

// Their numbers stay in `epochs`: a name that comes again gets others. What cannot be dropped now is by the next job
// that ends.
void EtcdStore::DropOld() {
  auto answer = Call("kv/txn", etcd::Txn({}, {etcd::GetAll(Key("index/"))}));
  if (!answer) return;
  auto index = etcd::IndexIn(etcd::ReadBy(*answer, 0));
  if (!index) return;
  std::vector<std::pair<std::string, etcd::Index>> over;
  for (const auto& row : *index) {
    if (row.second.over_ms > 0 && !row.second.is_kept) over.push_back(row);
  }
  std::sort(over.begin(), over.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.over_ms, a.second.mod_revision) > std::pair(b.second.over_ms, b.second.mod_revision);
  });
  over.erase(over.begin(), over.begin() + std::min<std::ptrdiff_t>(retention_.num_jobs, std::ssize(over)));
  const uint64_t now_ms = WallMs();
  std::erase_if(over, [&](const auto& row) { return row.second.over_ms + retention_.age_ms > now_ms; });
  for (size_t begin = 0; begin < over.size(); begin += kDropsMax) {
    std::vector<Json> conditions, operations;
    for (size_t i = begin; i < std::min(over.size(), begin + kDropsMax); ++i) {
      conditions.push_back(etcd::IsAt(Key("index/" + over[i].first), over[i].second.mod_revision));  // nobody joined again
      AddRemoval(over[i].first, operations);
    }
    if (auto dropped = Call("kv/txn", etcd::Txn(std::move(conditions), std::move(operations))); !dropped) return;
  }
}

}  // namespace mlnet::daemon
