// SPDX-License-Identifier: Apache-2.0
// The tests of what every store promises run over each of them; this is what they need to know of each.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <memory>
#include <string>

#include "daemon/etcd_store.h"
#include "daemon/sqlite_store.h"
#include "unit/daemon/etcd_server.h"
#include "unit/daemon/sql.h"

namespace mlnet::daemon {

/// One store that was never used before, and a look into it past the Store.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Result<std::unique_ptr<Store>> Open(const Retention& retention) = 0;
  virtual std::string NumCounters() = 0;
  virtual void MakeOlder(const std::string& job, int64_t ms) = 0;  // one that is over
  virtual void Break(const std::string& job) = 0;                  // its record cannot be read
  virtual void Mend(const std::string& job) = 0;
  virtual void BreakCounters(const std::string& job, uint64_t incarnation, const std::string& source) = 0;
};

class SqliteBackend final : public Backend {
 public:
  Result<std::unique_ptr<Store>> Open(const Retention& retention) override { return SqliteStore::Open(path_, retention); }
  std::string NumCounters() override { return test::Sql(path_, "SELECT COUNT(*) FROM counters"); }
  void MakeOlder(const std::string& job, int64_t ms) override {
    test::Sql(path_, "UPDATE jobs SET over_ms = over_ms - " + std::to_string(ms) + " WHERE name = '" + job + "'");
  }
  void Break(const std::string& job) override { test::Sql(path_, "UPDATE jobs SET body = '{' || body WHERE name = '" + job + "'"); }
  void Mend(const std::string& job) override { test::Sql(path_, "UPDATE jobs SET body = substr(body, 2) WHERE name = '" + job + "'"); }
  void BreakCounters(const std::string& job, uint64_t incarnation, const std::string& source) override {
    test::Sql(path_, "UPDATE counters SET body = '{' || body WHERE job = '" + job + "' AND incarnation = " + std::to_string(incarnation) +
                         " AND source = '" + source + "'");
  }

 private:
  const test::TempFolder folder_;
  const std::string path_ = folder_ / "deep/store.db";
};

class EtcdBackend final : public Backend {
 public:
  Result<std::unique_ptr<Store>> Open(const Retention& retention) override { return EtcdStore::Open(config_, retention); }
  std::string NumCounters() override { return std::to_string(server_.All(config_.prefix + "/counters/").size()); }
  void MakeOlder(const std::string& job, int64_t ms) override {
    const std::string key = config_.prefix + "/index/" + job;
    auto row = control::Json::parse(Value(key));
    row["over_ms"] = row["over_ms"].get<int64_t>() - ms;
    server_.Put(key, row.dump());
  }
  void Break(const std::string& job) override { server_.Put(Open(job), "{" + Value(Open(job))); }
  void Mend(const std::string& job) override { server_.Put(Open(job), Value(Open(job)).substr(1)); }
  void BreakCounters(const std::string& job, uint64_t incarnation, const std::string& source) override {
    const std::string key = config_.prefix + "/counters/" + job + "/" + std::to_string(incarnation) + "/" + source;
    server_.Put(key, "{" + Value(key));
  }

 private:
  std::string Open(const std::string& job) const { return config_.prefix + "/jobs/open/" + job; }
  std::string Value(const std::string& key) const {
    const auto answer = server_.Post("kv/range", {{"key", etcd::ToBase64(key)}});
    const auto found = etcd::KeyValues(answer);
    EXPECT_EQ(found.size(), 1u) << key;
    return found.empty() ? "{}" : found[0].value;
  }

  test::EtcdServer& server_ = test::SharedEtcd();
  const control::EtcdConfig config_ = server_.NewStore();
};

/// A job that runs: one rank, on the host that sums it.
inline void SetRunning(control::JobView& view, const char* state = control::kReady) {
  control::Plan plan;
  plan.ports = {{"w1", "eth0", "10.0.0.1", "127.0.0.1"}};
  plan.trees = {{1, {{0, -1}}}};
  plan.blocks = plan.classes = 1;
  plan.host_of_rank = {"w1"};
  view.job.plan = plan;
  view.job.world_size = 1;
  view.job.state = state;
  view.members = {{7, 0, "w1", 1, false, false, 0, ""}};
}

/// TEST_P(..., ...) over all stores; each test has one that was never used before.
class AnyStore : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("etcd")) backend_ = std::make_unique<EtcdBackend>();
    else backend_ = std::make_unique<SqliteBackend>();
  }
  std::unique_ptr<Store> Open(const Retention& retention = {}) const {
    auto store = backend_->Open(retention);
    EXPECT_TRUE(store) << store.error().ToString();
    return std::move(*store);
  }

  std::unique_ptr<Backend> backend_;
};

inline std::string NameOfStore(const ::testing::TestParamInfo<const char*>& info) { return info.param; }
#define MLNET_FOR_ALL_STORES(fixture) \
  INSTANTIATE_TEST_SUITE_P(stores, fixture, ::testing::Values("sqlite", "etcd"), daemon::NameOfStore)

/// What another daemon wrote becomes a change, at once or a little later.
inline bool BecomesChanged(Store& store, const Snapshot& since) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (;;) {
    const auto changed = store.Changed(since);
    if (changed && *changed) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace mlnet::daemon
