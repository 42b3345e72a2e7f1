// SPDX-License-Identifier: Apache-2.0
// What a daemon reads back from its store, which others wrote, or damaged: records as text, rows of SQLite with values of any
// type, etcd's answers. What is taken is all that was there, and everything that a daemon does with it can be done; the rest is an error.
// The first byte says which of them the input is.
#include <sqlite3.h>

#include <algorithm>
#include <map>

#include "control/record.h"
#include "daemon/etcd_records.h"
#include "daemon/sqlite_store.h"
#include "fuzz/reader.h"
#include "fuzz/require.h"
#include "fuzz/store/use.h"
#include "rpc/message.h"
#include "unit/temp_folder.h"

namespace mlnet::fuzz {
namespace {

using control::Json;
using daemon::Store;

// Whether every number, text and truth of `part` is in `whole`, for members that `whole` has.
void RequireWhole(const Json& whole, const Json& part) {
  if (part.is_object()) {
    for (const auto& [key, value] : part.items()) {
      if (whole.contains(key)) RequireWhole(whole[key], value);
    }
  } else if (part.is_array()) {
    REQUIRE(whole.size() == part.size());
    for (size_t i = 0; i < part.size(); ++i) RequireWhole(whole[i], part[i]);
  } else if (part.is_number_integer() && whole.is_number_integer()) {
    REQUIRE(whole.dump() == part.dump());  // by their digits: -1 == 2^64 - 1 to Json
  } else {
    REQUIRE(whole == part);
  }
}

void TakeJob(const std::string& text) {
  const auto view = control::ReadJobView(text);
  if (!view) return;
  RequireWhole(*view, Json::parse(text));
  daemon::Snapshot snapshot;
  snapshot.jobs = {*view, PlannedJob()};
  Use(snapshot);
}

// One host a line.
void TakeHosts(Reader in) {
  std::vector<control::HostRecord> hosts;
  while (!in.IsAtEnd() && hosts.size() < 8) {
    const std::string text = in.Line();
    const auto host = control::ReadHostRecord(text);
    if (!host) continue;
    RequireWhole(*host, Json::parse(text));
    if (std::any_of(hosts.begin(), hosts.end(), [&](const auto& h) { return h.host == host->host; })) continue;  // a key is there once
    hosts.push_back(*host);
    hosts.back().heartbeat_ms = 1;
  }
  Use(hosts);
}

void TakeCounters(const std::string& text) {
  const auto body = control::ReadCounters(text);
  if (!body) return;
  REQUIRE(*body == Json::parse(text));
  Use(PlannedJob(), {{"host a1", *body}, {"host w1", *body}, {"rank 0", *body}});
}

void TakeAnswer(const Json& answer) {
  namespace etcd = daemon::etcd;
  for (const bool wants_all : {true, false}) {
    const std::set<std::string> also = {"demo"};
    const auto snapshot = etcd::SnapshotIn(answer, "mlnet/jobs/open/", wants_all ? nullptr : &also);
    if (snapshot) Use(*snapshot);
  }
  if (const auto counters = etcd::CountersIn(answer, 0, "mlnet/counters/demo/1/")) Use(PlannedJob(), *counters);
  for (size_t i = 0; i < etcd::NumResponses(answer); ++i) {
    const auto rows = etcd::ReadBy(answer, i);
    if (const auto epochs = etcd::EpochsIn(rows)) {
      for (const auto& [id, epoch] : *epochs) REQUIRE(id >= 1 && id <= daemon::kJobIdMax && epoch.last >= 0 && epoch.last <= daemon::kEpochMax);
    }
    (void)etcd::IndexIn(rows);
  }
  REQUIRE(etcd::Revision(answer) >= 0);
  REQUIRE(etcd::LatestOf(answer).value_or(0) >= 0);
}

// Of lines: the operation that found it, key, value.
Json AnswerOf(Reader in) {
  namespace etcd = daemon::etcd;
  Json responses = Json::array();
  while (!in.IsAtEnd()) {
    const size_t operation = in.Byte() % 4;
    while (responses.size() <= operation) responses.push_back({{"response_range", {{"kvs", Json::array()}}}});
    const std::string key = in.Line(), value = in.Line();
    responses[operation]["response_range"]["kvs"].push_back({{"key", etcd::ToBase64(key)}, {"value", etcd::ToBase64(value)}, {"mod_revision", "7"}});
  }
  return {{"responses", std::move(responses)}};
}

// A store and a connection past it.
class File {
 public:
  File() {
    REQUIRE(sqlite3_open((folder_ / "store.db").c_str(), &db_) == SQLITE_OK);
    Run("PRAGMA synchronous = OFF");
  }
  ~File() { sqlite3_close(db_); }
  void Run(const char* sql) { REQUIRE(sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK); }

  void Fill(Reader in) {
    static constexpr std::pair<const char*, int> kTables[] = {{"INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?)", 6},
                                                              {"INSERT OR REPLACE INTO hosts VALUES (?, ?, ?)", 3},
                                                              {"INSERT OR REPLACE INTO epochs VALUES (?, ?)", 2},
                                                              {"INSERT OR REPLACE INTO counters VALUES (?, ?, ?, ?)", 4},
                                                              {"INSERT OR REPLACE INTO meta VALUES (?, ?)", 2}};
    Run("BEGIN; DELETE FROM jobs; DELETE FROM hosts; DELETE FROM epochs; DELETE FROM counters; DELETE FROM meta;"
        "INSERT INTO meta VALUES ('schema', 2), ('generation', 0)");
    for (int rows = 0; rows < 16 && !in.IsAtEnd(); ++rows) {
      const auto& [sql, num_columns] = kTables[in.Byte() % std::size(kTables)];
      sqlite3_stmt* insert = nullptr;
      REQUIRE(sqlite3_prepare_v2(db_, sql, -1, &insert, nullptr) == SQLITE_OK);
      for (int column = 1; column <= num_columns; ++column) Bind(insert, column, in);
      sqlite3_step(insert);  // what is no row of this table is refused by SQLite
      sqlite3_finalize(insert);
    }
    Run("COMMIT");
  }
  Store& store() { return *store_; }

 private:
  // A line: its first byte says of which type.
  static void Bind(sqlite3_stmt* insert, int column, Reader& in) {
    const std::string line = in.Line(), value = line.substr(line.empty() ? 0 : 1);
    const int size = static_cast<int>(value.size());
    switch (line.empty() ? 'n' : line[0]) {
      case 'i': sqlite3_bind_int64(insert, column, std::strtoll(value.c_str(), nullptr, 10)); break;
      case 'd': sqlite3_bind_double(insert, column, std::strtod(value.c_str(), nullptr)); break;
      case 'b': sqlite3_bind_blob(insert, column, value.data(), size, SQLITE_TRANSIENT); break;
      case 'n': sqlite3_bind_null(insert, column); break;
      default: sqlite3_bind_text(insert, column, value.data(), size, SQLITE_TRANSIENT);
    }
  }

  const test::TempFolder folder_{"/dev/shm"};  // no disk has to keep it
  std::unique_ptr<Store> store_ = *daemon::SqliteStore::Open(folder_ / "store.db");
  sqlite3* db_ = nullptr;
};

void TakeRows(Reader in) {
  static File file;
  Store& store = (file.Fill(in), file.store());
  if (const auto all = store.Load()) Use(*all);
  if (const auto open = store.LoadOpen({"demo", "over"})) REQUIRE(open->jobs.size() <= 16);
  (void)store.Changed({});
  if (const auto counters = store.LoadCounters({{"demo", 1}})) Use(PlannedJob(), (*counters)[0]);
  std::map<uint16_t, uint16_t> given;  // job id -> epoch
  for (const uint16_t wanted : {uint16_t{1}, uint16_t{0}, uint16_t{65535}, uint16_t{0}}) {
    (void)store.UpdateJob("demo", [&](std::optional<control::JobView>&) -> Result<void> {
      const auto numbers = store.TakeNumbers(wanted);
      if (!numbers) return tl::make_unexpected(numbers.error());
      REQUIRE(numbers->job_id != 0 && numbers->epoch > given[numbers->job_id]);
      given[numbers->job_id] = numbers->epoch;
      return {};
    });
  }
}

}  // namespace
}  // namespace mlnet::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mlnet::fuzz;
  const Input input;
  Reader in(data, size);
  switch (in.Byte()) {
    case 'j': TakeJob(in.Rest()); break;
    case 'h': TakeHosts(in); break;
    case 'c': TakeCounters(in.Rest()); break;
    case 'a':
      if (const auto answer = mlnet::rpc::ParseJson(in.Rest())) TakeAnswer(*answer);
      break;
    case 'k': TakeAnswer(AnswerOf(in)); break;
    case 's': TakeRows(in); break;
    default: break;
  }
  return 0;
}
