// SPDX-License-Identifier: Apache-2.0
// A prepared statement of the SQLite C API as a value; only sqlite_store.cc uses it.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "mlnet/error.h"

namespace mlnet::daemon {

inline Error SqliteError(sqlite3* db, const std::string& what) {
  const int code = sqlite3_errcode(db);
  return Error{code == SQLITE_BUSY ? ErrorCode::kTimeout : ErrorCode::kSystem,
               "store: " + what + ": " + sqlite3_errmsg(db), "check the file's folder, its owner and free space"};
}

class Statement {
 public:
  static Result<Statement> Prepare(sqlite3* db, std::string_view sql) {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(db, sql.data(), static_cast<int>(sql.size()), &raw, nullptr) != SQLITE_OK) {
      return tl::make_unexpected(SqliteError(db, std::string(sql)));
    }
    return Statement(db, raw);
  }

  Statement& Bind(int64_t value) {
    sqlite3_bind_int64(raw_.get(), ++bound_, value);
    return *this;
  }
  Statement& Bind(const std::string& value) {
    sqlite3_bind_text(raw_.get(), ++bound_, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT);
    return *this;
  }

  /// True: a row is there; false: done.
  Result<bool> Step() {
    const int rc = sqlite3_step(raw_.get());
    if (rc == SQLITE_ROW) return true;
    if (rc == SQLITE_DONE) return false;
    return tl::make_unexpected(SqliteError(db_, sqlite3_sql(raw_.get())));
  }
  Result<void> Run() {
    if (auto row = Step(); !row) return tl::make_unexpected(row.error());
    return {};
  }

  /// kProtocol where the column is no integer, or one beyond the limits: SQLite itself keeps any type in any column.
  Result<int64_t> Integer(int column, int64_t min = 0, int64_t max = std::numeric_limits<int64_t>::max()) const {
    const int64_t value = sqlite3_column_int64(raw_.get(), column);
    if (sqlite3_column_type(raw_.get(), column) == SQLITE_INTEGER && value >= min && value <= max) return value;
    return Err(ErrorCode::kProtocol, std::string("store: unreadable record: not a number within limits, from ") + sqlite3_sql(raw_.get()),
               "remove the store file");
  }
  std::string Text(int column) const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(raw_.get(), column));
    return text == nullptr ? "" : std::string(text, static_cast<size_t>(sqlite3_column_bytes(raw_.get(), column)));
  }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  Statement(sqlite3* db, sqlite3_stmt* raw) : db_(db), raw_(raw) {}

  sqlite3* db_;
  std::unique_ptr<sqlite3_stmt, Finalize> raw_;
  int bound_ = 0;
};

}  // namespace mlnet::daemon
