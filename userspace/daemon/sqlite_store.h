// SPDX-License-Identifier: Apache-2.0
// The store as a file: SQLite in WAL mode, for daemons that see the same file system.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/store.h"

struct sqlite3;

namespace mlnet::daemon {

class SqliteStore final : public Store {
 public:
  static Result<std::unique_ptr<Store>> Open(const std::string& path, const Retention& retention = {});

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

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  SqliteStore(sqlite3* db, const Retention& retention) : db_(db), retention_(retention) {}
  Result<void> SetUp(const std::string& path);
  Result<void> Transact(const std::function<Result<void>()>& body);
  Result<Snapshot> Read(const std::function<Result<std::vector<control::JobView>>()>& jobs);
  Result<void> Write(const std::string& name, const std::optional<control::JobView>& view);
  Result<void> DropOld(int64_t now_ms);
  Result<void> Touch();
  Result<std::vector<Counters>> CountersOf(const Life& life);
  Result<int64_t> ReadInteger(const char* sql);

  std::unique_ptr<sqlite3, Close> db_;
  Retention retention_;
};

}  // namespace mlnet::daemon
