// SPDX-License-Identifier: Apache-2.0
#include "daemon/sqlite_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/clock.h"
#include "base/errno_error.h"
#include "base/fd.h"
#include "control/job.h"
#include "control/record.h"
#include "daemon/sqlite.h"
#include "rpc/message.h"

namespace mlnet::daemon {
namespace {

using control::HostRecord;
using control::JobView;
using control::Json;

constexpr int kBusyTimeoutMs = 5000;
constexpr int64_t kSchemaVersion = 2;
constexpr int64_t kNotOver = 0;

constexpr const char* kSchema = R"(
  CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS hosts (host TEXT PRIMARY KEY, body TEXT NOT NULL, heartbeat_ms INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS jobs (name TEXT PRIMARY KEY, job_id INTEGER NOT NULL, body TEXT NOT NULL,
                                   incarnation INTEGER NOT NULL DEFAULT 0, over_ms INTEGER NOT NULL DEFAULT 0,
                                   is_kept INTEGER NOT NULL DEFAULT 0);
  CREATE TABLE IF NOT EXISTS epochs (job_id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS counters (job TEXT, incarnation INTEGER, source TEXT, body TEXT NOT NULL,
                                       PRIMARY KEY (job, incarnation, source));
  INSERT OR IGNORE INTO meta VALUES ('schema', 2), ('generation', 0);
)";
// A store of schema 1, whose jobs are to be written again. It dropped none, and kept counters that nobody asks for.
constexpr const char* kFromSchema1 = R"(
  ALTER TABLE jobs ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE jobs ADD COLUMN over_ms INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE jobs ADD COLUMN is_kept INTEGER NOT NULL DEFAULT 0;
  DELETE FROM counters WHERE job NOT IN (SELECT name FROM jobs);
  UPDATE meta SET value = 2 WHERE key = 'schema';
)";
constexpr const char* kIndex = "CREATE INDEX IF NOT EXISTS jobs_over ON jobs (over_ms)";
constexpr const char* kAllJobs = "SELECT name, body FROM jobs ORDER BY name";
constexpr const char* kGeneration = "SELECT value FROM meta WHERE key = 'generation'";

tl::unexpected<Error> Unreadable(const std::string& name, const std::string& why) {
  return Err(ErrorCode::kProtocol, "store: unreadable record of '" + name + "': " + why, "remove the store file");
}

Result<void> Execute(sqlite3* db, const char* sql) {
  if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return tl::make_unexpected(SqliteError(db, sql));
  return {};
}

// A row {name, body}.
Result<JobView> JobIn(const Statement& row) {
  auto view = control::ReadJobView(row.Text(1));
  if (!view) return Unreadable(row.Text(0), view.error().message);
  if (view->job.name != row.Text(0)) return Unreadable(row.Text(0), "it is of '" + view->job.name + "'");
  return view;
}

// A row {name, body, heartbeat}.
Result<HostRecord> HostIn(const Statement& row) {
  auto host = control::ReadHostRecord(row.Text(1));
  if (!host) return Unreadable(row.Text(0), host.error().message);
  if (host->host != row.Text(0)) return Unreadable(row.Text(0), "it is of '" + host->host + "'");
  const auto heartbeat_ms = row.Integer(2);
  if (!heartbeat_ms) return tl::make_unexpected(heartbeat_ms.error());
  host->heartbeat_ms = static_cast<uint64_t>(*heartbeat_ms);
  return host;
}

// Every row as `read` reads it.
template <typename T>
Result<std::vector<T>> ReadAll(sqlite3* db, const char* sql, Result<T> (*read)(const Statement&)) {
  std::vector<T> all;
  auto statement = Statement::Prepare(db, sql);
  if (!statement) return tl::make_unexpected(statement.error());
  for (;;) {
    auto row = statement->Step();
    if (!row) return tl::make_unexpected(row.error());
    if (!*row) return all;
    auto value = read(*statement);
    if (!value) return tl::make_unexpected(value.error());
    all.push_back(std::move(*value));
  }
}

Result<std::optional<JobView>> ReadJob(sqlite3* db, const std::string& name) {
  auto statement = Statement::Prepare(db, "SELECT name, body FROM jobs WHERE name = ?");
  if (!statement) return tl::make_unexpected(statement.error());
  auto row = statement->Bind(name).Step();
  if (!row) return tl::make_unexpected(row.error());
  if (!*row) return std::optional<JobView>{};
  return JobIn(*statement).map([](JobView v) { return std::optional<JobView>(std::move(v)); });
}

// Statement by statement with the same bindings.
template <typename... Values>
Result<void> RunAll(sqlite3* db, std::initializer_list<std::string_view> all, const Values&... values) {
  for (const std::string_view sql : all) {
    auto statement = Statement::Prepare(db, sql);
    if (!statement) return tl::make_unexpected(statement.error());
    (statement->Bind(values), ...);
    if (auto ok = statement->Run(); !ok) return ok;
  }
  return {};
}

// The switch to WAL fails with "database is locked" at once, whatever the busy timeout, when another daemon is
// at it. Daemons that start together therefore take turns; the lock file stays, as an empty file beside the store.
Result<Fd> TakeTurn(const std::string& path) {
  const std::string lock_path = path + ".lock";
  Fd lock(::open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0660));
  int rc = -1;
  if (lock) {
    while ((rc = ::flock(lock.get(), LOCK_EX)) != 0 && errno == EINTR) continue;
  }
  if (rc != 0) {
    return tl::make_unexpected(
        ErrnoError("store: lock " + lock_path, errno, "check the file's folder, its owner and free space"));
  }
  return lock;
}

}  // namespace

void SqliteStore::Close::operator()(sqlite3* db) const { sqlite3_close(db); }

Result<std::unique_ptr<Store>> SqliteStore::Open(const std::string& path, const Retention& retention) {
  std::error_code ec;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ec);
  const auto turn = TakeTurn(path);
  if (!turn) return tl::make_unexpected(turn.error());
  sqlite3* raw = nullptr;
  const int rc = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, nullptr);
  std::unique_ptr<SqliteStore> store(new SqliteStore(raw, retention));
  if (rc != SQLITE_OK) return tl::make_unexpected(SqliteError(raw, "open " + path));
  ::chmod(path.c_str(), 0600);  // keys of jobs are in it; what SQLite puts beside it gets the same mode
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  for (const char* sql : {"PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL"}) {
    if (auto ok = Execute(raw, sql); !ok) return tl::make_unexpected(ok.error());
  }
  if (auto ok = store->Transact([&] { return store->SetUp(path); }); !ok) return tl::make_unexpected(ok.error());
  return store;
}

Result<void> SqliteStore::SetUp(const std::string& path) {
  // A view that never ends, a trigger that changes what is read: nothing that mlnetd made.
  const auto strangers = ReadInteger("SELECT COUNT(*) FROM sqlite_schema WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%'");
  if (!strangers) return tl::make_unexpected(strangers.error());
  if (*strangers > 0) return Err(ErrorCode::kProtocol, "store " + path + " has views, triggers or virtual tables", "it is not a store of mlnetd's: name another file");
  if (auto ok = Execute(db_.get(), kSchema); !ok) return ok;
  auto version = ReadInteger("SELECT value FROM meta WHERE key = 'schema'");
  if (!version) return tl::make_unexpected(version.error());
  if (*version != 1 && *version != kSchemaVersion) {
    return Err(ErrorCode::kUnsupported, "store " + path + " has schema " + std::to_string(*version) + ", this mlnetd knows " +
                                            std::to_string(kSchemaVersion),
               "run the same version of mlnetd on all hosts");
  }
  if (*version == 1) {
    if (auto ok = Execute(db_.get(), kFromSchema1); !ok) return ok;
    auto jobs = ReadAll(db_.get(), kAllJobs, JobIn);
    if (!jobs) return tl::make_unexpected(jobs.error());
    for (const JobView& view : *jobs) {
      if (auto ok = Write(view.job.name, view); !ok) return ok;
    }
  }
  return Execute(db_.get(), kIndex);
}

Result<int64_t> SqliteStore::ReadInteger(const char* sql) {
  auto statement = Statement::Prepare(db_.get(), sql);
  if (!statement) return tl::make_unexpected(statement.error());
  auto row = statement->Step();
  if (!row) return tl::make_unexpected(row.error());
  return *row ? statement->Integer(0) : Result<int64_t>(0);
}

Result<void> SqliteStore::Transact(const std::function<Result<void>()>& body) {
  if (auto ok = Execute(db_.get(), "BEGIN IMMEDIATE"); !ok) return ok;
  auto done = body();
  if (done) done = Execute(db_.get(), "COMMIT");
  if (!done) sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  return done;
}

Result<void> SqliteStore::Touch() { return Execute(db_.get(), "UPDATE meta SET value = value + 1 WHERE key = 'generation'"); }

Result<bool> SqliteStore::Changed(const Snapshot& since) {
  return ReadInteger(kGeneration).map([&](int64_t generation) { return generation != since.generation; });
}

Result<Snapshot> SqliteStore::Read(const std::function<Result<std::vector<JobView>>()>& jobs) {
  // One read transaction: hosts and jobs of the same moment.
  if (auto ok = Execute(db_.get(), "BEGIN"); !ok) return tl::make_unexpected(ok.error());
  auto generation = ReadInteger(kGeneration);
  auto hosts = LoadHosts();
  auto views = jobs();
  Execute(db_.get(), "COMMIT");
  if (!generation) return tl::make_unexpected(generation.error());
  if (!hosts) return tl::make_unexpected(hosts.error());
  if (!views) return tl::make_unexpected(views.error());
  return Snapshot{std::move(*hosts), std::move(*views), *generation};
}

Result<std::vector<HostRecord>> SqliteStore::LoadHosts() {
  return ReadAll(db_.get(), "SELECT host, body, heartbeat_ms FROM hosts ORDER BY host", HostIn);
}

Result<Snapshot> SqliteStore::Load() {
  return Read([&] { return ReadAll(db_.get(), kAllJobs, JobIn); });
}

Result<Snapshot> SqliteStore::LoadOpen(const std::set<std::string>& also) {
  return Read([&]() -> Result<std::vector<JobView>> {
    auto views = ReadAll(db_.get(), "SELECT name, body FROM jobs WHERE over_ms = 0", JobIn);
    for (auto name = also.begin(); views && name != also.end(); ++name) {
      auto view = ReadJob(db_.get(), *name);
      if (!view) return tl::make_unexpected(view.error());
      if (*view && IsOver(**view)) views->push_back(std::move(**view));
    }
    const auto by_name = [](const JobView& a, const JobView& b) { return a.job.name < b.job.name; };
    if (views) std::sort(views->begin(), views->end(), by_name);
    return views;
  });
}

// Counters are of one incarnation: those of any other go here.
Result<void> SqliteStore::Write(const std::string& name, const std::optional<JobView>& view) {
  if (!view) return RunAll(db_.get(), {"DELETE FROM jobs WHERE name = ?", "DELETE FROM counters WHERE job = ?"}, name);
  const auto incarnation = static_cast<int64_t>(view->job.incarnation);
  const int64_t over_ms = IsOver(*view) ? static_cast<int64_t>(WallMs()) : kNotOver;
  const bool is_kept = IsKept(*view);
  auto ok = RunAll(db_.get(), {"INSERT OR REPLACE INTO jobs (name, job_id, body, incarnation, over_ms, is_kept) "
                               "VALUES (?, ?, ?, ?, ?, ?)"},
                   name, int64_t{view->job.job_id}, rpc::Dump(Json(*view)), incarnation, over_ms, int64_t{is_kept});
  if (ok) ok = RunAll(db_.get(), {"DELETE FROM counters WHERE job = ? AND incarnation <> ?"}, name, incarnation);
  return ok && over_ms != kNotOver ? DropOld(over_ms) : ok;
}

// Their numbers stay in `epochs`: a name that comes again gets others.
Result<void> SqliteStore::DropOld(int64_t now_ms) {
  static const std::string kOld =
      "(SELECT name FROM (SELECT name, over_ms FROM jobs WHERE over_ms > 0 AND NOT is_kept "
      "ORDER BY over_ms DESC, rowid DESC LIMIT -1 OFFSET ?1) WHERE over_ms <= ?2)";
  static const std::string kCounters = "DELETE FROM counters WHERE job IN " + kOld;
  static const std::string kJobs = "DELETE FROM jobs WHERE name IN " + kOld;
  return RunAll(db_.get(), {kCounters, kJobs}, int64_t{retention_.num_jobs}, now_ms - int64_t{retention_.age_ms});
}

Result<void> SqliteStore::UpdateJob(const std::string& name, const Change& change) {
  Result<void> outcome;
  auto done = Transact([&]() -> Result<void> {
    auto view = ReadJob(db_.get(), name);
    if (!view) return tl::make_unexpected(view.error());
    const std::string before = ToText(*view);
    // An error of `change` is an answer, not a failure: what it left in the job is kept.
    outcome = change(*view);
    if (ToText(*view) == before) return {};
    if (auto ok = Write(name, *view); !ok) return ok;
    return Touch();
  });
  return done ? outcome : done;
}

Result<control::Numbering> SqliteStore::TakeNumbers(uint16_t wanted) {
  constexpr const char* kOwn = "SELECT ?1, COALESCE((SELECT epoch FROM epochs WHERE job_id = ?1), 0)";
  // The lowest id that no job holds and that has epochs left; an id never seen before counts as epoch 0.
  constexpr const char* kFree =
      "SELECT id, epoch FROM (SELECT job_id AS id, epoch FROM epochs UNION ALL "
      "SELECT COALESCE((SELECT MAX(job_id) FROM epochs), 0) + 1, 0) "
      "WHERE epoch < 65535 AND id NOT IN (SELECT job_id FROM jobs) ORDER BY id LIMIT 1";
  int64_t id = 0, epoch = kEpochMax;
  for (const char* sql : {kOwn, kFree}) {
    if (sql == kOwn && wanted == 0) continue;
    auto statement = Statement::Prepare(db_.get(), sql);
    if (!statement) return tl::make_unexpected(statement.error());
    if (sql == kOwn) statement->Bind(int64_t{wanted});
    auto row = statement->Step();
    if (!row) return tl::make_unexpected(row.error());
    if (!*row) continue;
    // An epoch that is taken for less than it was would be given a second time.
    const auto found_id = statement->Integer(0), found_epoch = statement->Integer(1, 0, kEpochMax);
    if (!found_id) return tl::make_unexpected(found_id.error());
    if (!found_epoch) return tl::make_unexpected(found_epoch.error());
    id = *found_id;
    epoch = *found_epoch;
    if (epoch < kEpochMax) break;
  }
  if (id == 0 || id > kJobIdMax || epoch >= kEpochMax) {
    return Err(ErrorCode::kConflict, "all job ids are taken", "delete jobs that have ended: mlnetctl job delete NAME");
  }
  auto save = Statement::Prepare(db_.get(), "INSERT OR REPLACE INTO epochs VALUES (?, ?)");
  if (!save) return tl::make_unexpected(save.error());
  if (auto ok = save->Bind(id).Bind(epoch + 1).Run(); !ok) return tl::make_unexpected(ok.error());
  return control::Numbering{static_cast<uint16_t>(id), static_cast<uint16_t>(epoch + 1)};
}

Result<void> SqliteStore::SaveHost(const HostRecord& host) {
  return Transact([&]() -> Result<void> {
    auto statement = Statement::Prepare(db_.get(), "INSERT OR REPLACE INTO hosts VALUES (?, ?, ?)");
    if (!statement) return tl::make_unexpected(statement.error());
    statement->Bind(host.host).Bind(rpc::Dump(Json(host))).Bind(static_cast<int64_t>(host.heartbeat_ms));
    if (auto ok = statement->Run(); !ok) return ok;
    return Touch();
  });
}

Result<void> SqliteStore::Beat(const std::string& host, uint64_t now_ms) {
  auto statement = Statement::Prepare(db_.get(), "UPDATE hosts SET heartbeat_ms = ? WHERE host = ?");
  if (!statement) return tl::make_unexpected(statement.error());
  return statement->Bind(static_cast<int64_t>(now_ms)).Bind(host).Run();
}

Result<void> SqliteStore::SaveCounters(const std::string& job, uint64_t incarnation, const std::vector<Counters>& counters) {
  if (counters.empty()) return {};
  return Transact([&]() -> Result<void> {
    for (const Counters& one : counters) {
      auto ok = RunAll(db_.get(), {"INSERT OR REPLACE INTO counters SELECT name, incarnation, ?3, ?4 FROM jobs "
                                   "WHERE name = ?1 AND incarnation = ?2"},
                       job, static_cast<int64_t>(incarnation), one.source, rpc::Dump(one.body));
      if (!ok) return ok;
    }
    return {};
  });
}

Result<std::vector<std::vector<Store::Counters>>> SqliteStore::LoadCounters(const std::vector<Life>& lives) {
  std::vector<std::vector<Counters>> all;
  for (const Life& life : lives) all.push_back(CountersOf(life).value_or(std::vector<Counters>{}));
  return all;
}

Result<std::vector<Store::Counters>> SqliteStore::CountersOf(const Life& life) {
  auto statement = Statement::Prepare(db_.get(), "SELECT source, body FROM counters WHERE job = ? AND incarnation = ?");
  if (!statement) return tl::make_unexpected(statement.error());
  statement->Bind(life.job).Bind(static_cast<int64_t>(life.incarnation));
  std::vector<Counters> all;
  for (;;) {
    auto row = statement->Step();
    if (!row) return tl::make_unexpected(row.error());
    if (!*row) return all;
    auto body = control::ReadCounters(statement->Text(1));
    if (!body) return Unreadable(life.job, body.error().message);
    all.push_back({statement->Text(0), std::move(*body)});
  }
}

}  // namespace mlnet::daemon
