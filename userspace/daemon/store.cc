// SPDX-License-Identifier: Apache-2.0
#include "daemon/store.h"

#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>

#include "base/errno_error.h"
#include "base/fd.h"
#include "daemon/sqlite.h"

namespace mlnet::daemon {
namespace {

using control::HostRecord;
using control::JobView;
using control::Json;

constexpr int kBusyTimeoutMs = 5000;
constexpr int64_t kSchemaVersion = 1;
constexpr int64_t kEpochMax = 65535;
constexpr int64_t kJobIdMax = 65535;

constexpr const char* kSchema = R"(
  CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS hosts (host TEXT PRIMARY KEY, body TEXT NOT NULL, heartbeat_ms INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS jobs (name TEXT PRIMARY KEY, job_id INTEGER NOT NULL, body TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS epochs (job_id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS counters (job TEXT, incarnation INTEGER, source TEXT, body TEXT NOT NULL,
                                       PRIMARY KEY (job, incarnation, source));
  INSERT OR IGNORE INTO meta VALUES ('schema', 1), ('generation', 0);
)";

template <typename T>
Result<T> FromJson(const std::string& text) {
  try {
    return Json::parse(text).get<T>();
  } catch (const Json::exception& e) {
    return Err(ErrorCode::kProtocol, std::string("store: unreadable record: ") + e.what(), "remove the store file");
  }
}

Result<void> Execute(sqlite3* db, const char* sql) {
  if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return tl::make_unexpected(SqliteError(db, sql));
  return {};
}

// Every row's first column as T.
template <typename T>
Result<std::vector<T>> ReadAll(sqlite3* db, const char* sql) {
  std::vector<T> all;
  auto statement = Statement::Prepare(db, sql);
  if (!statement) return tl::make_unexpected(statement.error());
  for (;;) {
    auto row = statement->Step();
    if (!row) return tl::make_unexpected(row.error());
    if (!*row) return all;
    auto value = FromJson<T>(statement->Text(0));
    if (!value) return tl::make_unexpected(value.error());
    if constexpr (std::is_same_v<T, HostRecord>) value->heartbeat_ms = static_cast<uint64_t>(statement->Integer(1));
    all.push_back(std::move(*value));
  }
}

Result<std::optional<JobView>> ReadJob(sqlite3* db, const std::string& name) {
  auto statement = Statement::Prepare(db, "SELECT body FROM jobs WHERE name = ?");
  if (!statement) return tl::make_unexpected(statement.error());
  auto row = statement->Bind(name).Step();
  if (!row) return tl::make_unexpected(row.error());
  if (!*row) return std::optional<JobView>{};
  return FromJson<JobView>(statement->Text(0)).map([](JobView v) { return std::optional<JobView>(std::move(v)); });
}

Result<void> WriteJob(sqlite3* db, const std::string& name, const std::optional<JobView>& view) {
  const char* sql = view ? "INSERT OR REPLACE INTO jobs (name, job_id, body) VALUES (?, ?, ?)" : "DELETE FROM jobs WHERE name = ?";
  auto statement = Statement::Prepare(db, sql);
  if (!statement) return tl::make_unexpected(statement.error());
  statement->Bind(name);
  if (view) statement->Bind(int64_t{view->job.job_id}).Bind(Json(*view).dump());
  return statement->Run();
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

std::string Text(const std::optional<JobView>& view) { return view ? Json(*view).dump() : ""; }

}  // namespace

void Store::Close::operator()(sqlite3* db) const { sqlite3_close(db); }

Result<Store> Store::Open(const std::string& path) {
  std::error_code ec;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ec);
  const auto turn = TakeTurn(path);
  if (!turn) return tl::make_unexpected(turn.error());
  sqlite3* raw = nullptr;
  const int rc = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, nullptr);
  Store store(raw);
  if (rc != SQLITE_OK) return tl::make_unexpected(SqliteError(raw, "open " + path));
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  for (const char* sql : {"PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL"}) {
    if (auto ok = Execute(raw, sql); !ok) return tl::make_unexpected(ok.error());
  }
  auto ok = store.Transact([&] { return Execute(raw, kSchema); });
  if (!ok) return tl::make_unexpected(ok.error());
  auto version = store.ReadInteger("SELECT value FROM meta WHERE key = 'schema'");
  if (!version) return tl::make_unexpected(version.error());
  if (*version != kSchemaVersion) {
    return Err(ErrorCode::kUnsupported, "store " + path + " has schema " + std::to_string(*version) + ", this mlnetd knows " +
                                            std::to_string(kSchemaVersion),
               "run the same version of mlnetd on all hosts");
  }
  return store;
}

Result<int64_t> Store::ReadInteger(const char* sql) {
  auto statement = Statement::Prepare(db_.get(), sql);
  if (!statement) return tl::make_unexpected(statement.error());
  auto row = statement->Step();
  if (!row) return tl::make_unexpected(row.error());
  return *row ? statement->Integer(0) : 0;
}

Result<void> Store::Transact(const std::function<Result<void>()>& body) {
  if (auto ok = Execute(db_.get(), "BEGIN IMMEDIATE"); !ok) return ok;
  auto done = body();
  if (done) done = Execute(db_.get(), "COMMIT");
  if (!done) sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  return done;
}

Result<void> Store::Touch() {
  wrote_ = true;
  return Execute(db_.get(), "UPDATE meta SET value = value + 1 WHERE key = 'generation'");
}

Result<bool> Store::Changed() {
  auto version = ReadInteger("PRAGMA data_version");
  if (!version) return tl::make_unexpected(version.error());
  if (*version == data_version_ && !wrote_) return false;
  data_version_ = *version;
  wrote_ = false;
  auto generation = ReadInteger("SELECT value FROM meta WHERE key = 'generation'");
  if (!generation) return tl::make_unexpected(generation.error());
  return *generation != generation_;
}

Result<Snapshot> Store::Load() {
  // One read transaction: hosts and jobs of the same moment.
  if (auto ok = Execute(db_.get(), "BEGIN"); !ok) return tl::make_unexpected(ok.error());
  auto generation = ReadInteger("SELECT value FROM meta WHERE key = 'generation'");
  auto hosts = ReadAll<HostRecord>(db_.get(), "SELECT body, heartbeat_ms FROM hosts ORDER BY host");
  auto jobs = ReadAll<JobView>(db_.get(), "SELECT body FROM jobs ORDER BY name");
  Execute(db_.get(), "COMMIT");
  if (!generation) return tl::make_unexpected(generation.error());
  if (!hosts) return tl::make_unexpected(hosts.error());
  if (!jobs) return tl::make_unexpected(jobs.error());
  generation_ = *generation;
  return Snapshot{std::move(*hosts), std::move(*jobs)};
}

Result<void> Store::UpdateJob(const std::string& name, const Change& change) {
  Result<void> outcome;
  auto done = Transact([&]() -> Result<void> {
    auto view = ReadJob(db_.get(), name);
    if (!view) return tl::make_unexpected(view.error());
    const std::string before = Text(*view);
    // An error of `change` is an answer, not a failure: what it left in the job is kept.
    outcome = change(*view);
    if (Text(*view) == before) return {};
    if (auto ok = WriteJob(db_.get(), name, *view); !ok) return ok;
    return Touch();
  });
  return done ? outcome : done;
}

Result<control::Numbering> Store::TakeNumbers(uint16_t wanted) {
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
    id = statement->Integer(0);
    epoch = statement->Integer(1);
    if (*row && epoch < kEpochMax) break;
  }
  if (id == 0 || id > kJobIdMax || epoch >= kEpochMax) {
    return Err(ErrorCode::kConflict, "all job ids are taken", "delete jobs that have ended: mlnetctl job delete NAME");
  }
  auto save = Statement::Prepare(db_.get(), "INSERT OR REPLACE INTO epochs VALUES (?, ?)");
  if (!save) return tl::make_unexpected(save.error());
  if (auto ok = save->Bind(id).Bind(epoch + 1).Run(); !ok) return tl::make_unexpected(ok.error());
  return control::Numbering{static_cast<uint16_t>(id), static_cast<uint16_t>(epoch + 1)};
}

Result<void> Store::SaveHost(const HostRecord& host) {
  return Transact([&]() -> Result<void> {
    auto statement = Statement::Prepare(db_.get(), "INSERT OR REPLACE INTO hosts VALUES (?, ?, ?)");
    if (!statement) return tl::make_unexpected(statement.error());
    statement->Bind(host.host).Bind(Json(host).dump()).Bind(static_cast<int64_t>(host.heartbeat_ms));
    if (auto ok = statement->Run(); !ok) return ok;
    return Touch();
  });
}

Result<void> Store::Beat(const std::string& host, uint64_t now_ms) {
  auto statement = Statement::Prepare(db_.get(), "UPDATE hosts SET heartbeat_ms = ? WHERE host = ?");
  if (!statement) return tl::make_unexpected(statement.error());
  return statement->Bind(static_cast<int64_t>(now_ms)).Bind(host).Run();
}

Result<void> Store::SaveCounters(const std::string& job, uint64_t incarnation, const std::vector<Counters>& counters) {
  if (counters.empty()) return {};
  return Transact([&]() -> Result<void> {
    auto clear = Statement::Prepare(db_.get(), "DELETE FROM counters WHERE job = ? AND incarnation < ?");
    if (!clear) return tl::make_unexpected(clear.error());
    if (auto ok = clear->Bind(job).Bind(static_cast<int64_t>(incarnation)).Run(); !ok) return ok;
    for (const Counters& one : counters) {
      auto save = Statement::Prepare(db_.get(), "INSERT OR REPLACE INTO counters VALUES (?, ?, ?, ?)");
      if (!save) return tl::make_unexpected(save.error());
      save->Bind(job).Bind(static_cast<int64_t>(incarnation)).Bind(one.source).Bind(one.body.dump());
      if (auto ok = save->Run(); !ok) return ok;
    }
    return {};
  });
}

Result<std::vector<Store::Counters>> Store::LoadCounters(const std::string& job, uint64_t incarnation) {
  auto statement = Statement::Prepare(db_.get(), "SELECT source, body FROM counters WHERE job = ? AND incarnation = ?");
  if (!statement) return tl::make_unexpected(statement.error());
  statement->Bind(job).Bind(static_cast<int64_t>(incarnation));
  std::vector<Counters> all;
  for (;;) {
    auto row = statement->Step();
    if (!row) return tl::make_unexpected(row.error());
    if (!*row) return all;
    auto body = FromJson<Json>(statement->Text(1));
    if (!body) return tl::make_unexpected(body.error());
    all.push_back({statement->Text(0), std::move(*body)});
  }
}

}  // namespace mlnet::daemon
