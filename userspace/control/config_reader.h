// SPDX-License-Identifier: Apache-2.0
// Typed reads from a TOML table that remember which keys were asked for, so that the rest is an error with
// its place and the nearest known key. Only config.cc uses it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <toml++/toml.h>
#include <vector>

#include "mlnet/error.h"

namespace mlnet::control {

/// Number of insertions, deletions and substitutions between two words.
size_t EditDistance(std::string_view a, std::string_view b);

class TableReader {
 public:
  /// `name` is "" for the file itself, else the table's name. `table` may be null: every key is absent.
  /// The first error of all readers of a file is kept in `error`.
  TableReader(const toml::table* table, std::string name, std::string source, Error* error)
      : table_(table), name_(std::move(name)), source_(std::move(source)), error_(error) {}

  bool IsString(const char* key) const;
  void String(const char* key, std::string& out);
  void StringOrEmpty(const char* key, std::string& out);
  void OneOf(const char* key, std::string& out, std::initializer_list<const char*> values);
  void Bool(const char* key, bool& out);
  /// REQUIRES: an integer in min..max.
  void Integer(const char* key, int64_t min, int64_t max, int64_t& out);
  template <typename T>
  void Number(const char* key, int64_t min, int64_t max, T& out) {
    int64_t value = static_cast<int64_t>(out);
    Integer(key, min, max, value);
    out = static_cast<T>(value);
  }
  /// REQUIRES: as many integers in min..max as `out` has.
  template <typename T, size_t N>
  void Numbers(const char* key, int64_t min, int64_t max, std::array<T, N>& out) {
    std::array<int64_t, N> values;
    std::copy(out.begin(), out.end(), values.begin());
    Integers(key, min, max, values);
    std::transform(values.begin(), values.end(), out.begin(), [](int64_t v) { return static_cast<T>(v); });
  }
  void Integers(const char* key, int64_t min, int64_t max, std::span<int64_t> out);
  /// REQUIRES: a number in min..max.
  void Real(const char* key, double min, double max, double& out);
  /// A rate such as "25gbit".
  void Rate(const char* key, uint64_t& out);
  /// The sub-table or array of tables `key`; marks it as known.
  const toml::table* Table(const char* key);
  std::vector<const toml::table*> Tables(const char* key);

  /// Any key that nobody asked for.
  void RejectUnknown();
  /// Records an error at the place of `key`.
  void Fail(const char* key, const std::string& what);

 private:
  const toml::node* Find(const char* key);
  void FailAt(const toml::source_region& where, const std::string& what, std::string hint = {});
  std::string Spelling(const std::string& key) const { return name_.empty() ? key : name_ + "." + key; }

  const toml::table* table_;
  std::string name_;
  std::string source_;
  Error* error_;
  std::vector<std::string> known_;
};

}  // namespace mlnet::control
