// SPDX-License-Identifier: Apache-2.0
// A look into a store's file, past the Store.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <string>

namespace mlnet::test {

/// The first column of the last row; empty when there is none.
inline std::string Sql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  std::string last;
  const auto keep = [](void* out, int, char** columns, char**) {
    *static_cast<std::string*>(out) = columns[0] == nullptr ? "" : columns[0];
    return 0;
  };
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), keep, &last, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
  return last;
}

}  // namespace mlnet::test
