// SPDX-License-Identifier: Apache-2.0
#include "control/config_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/rate.h"

namespace mlnet::control {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({change, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

const toml::node* TableReader::Find(const char* key) {
  known_.emplace_back(key);
  return table_ == nullptr ? nullptr : table_->get(key);
}

void TableReader::FailAt(const toml::source_region& where, const std::string& what, std::string hint) {
  if (!error_->message.empty()) return;
  *error_ = Error{ErrorCode::kInvalidArgument,
                  source_ + ":" + std::to_string(where.begin.line) + ":" + std::to_string(where.begin.column) + ": " + what,
                  std::move(hint)};
}

void TableReader::Fail(const char* key, const std::string& what) {
  const toml::node* node = table_ == nullptr ? nullptr : table_->get(key);
  const toml::source_region nowhere{};
  FailAt(node != nullptr ? node->source() : table_ != nullptr ? table_->source() : nowhere, Spelling(key) + " " + what);
}

bool TableReader::IsString(const char* key) const {
  const toml::node* node = table_ == nullptr ? nullptr : table_->get(key);
  return node != nullptr && node->is_string();
}

void TableReader::String(const char* key, std::string& out) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  if (auto value = node->value_exact<std::string>(); value && !value->empty()) out = *value;
  else Fail(key, "must be a non-empty string");
}

void TableReader::StringOrEmpty(const char* key, std::string& out) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  if (auto value = node->value_exact<std::string>()) out = *value;
  else Fail(key, "must be a string");
}

void TableReader::OneOf(const char* key, std::string& out, std::initializer_list<const char*> values) {
  String(key, out);
  if (std::find(values.begin(), values.end(), out) != values.end()) return;
  std::string list;
  for (const char* value : values) list += (list.empty() ? "" : ", ") + std::string(value);
  Fail(key, "is '" + out + "', must be one of: " + list);
}

void TableReader::Bool(const char* key, bool& out) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  if (auto value = node->value_exact<bool>()) out = *value;
  else Fail(key, "must be true or false");
}

void TableReader::Integer(const char* key, int64_t min, int64_t max, int64_t& out) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  const auto value = node->value_exact<int64_t>();
  if (value && *value >= min && *value <= max) out = *value;
  else Fail(key, "must be an integer from " + std::to_string(min) + " to " + std::to_string(max));
}

void TableReader::Integers(const char* key, int64_t min, int64_t max, std::span<int64_t> out) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  const toml::array* array = node->as_array();
  bool is_good = array != nullptr && array->size() == out.size();
  for (size_t i = 0; is_good && i < out.size(); ++i) {
    const auto value = array->get(i)->value_exact<int64_t>();
    is_good = value && *value >= min && *value <= max;
    if (is_good) out[i] = *value;
  }
  if (!is_good) Fail(key, fmt::format("must be {} integers from {} to {}", out.size(), min, max));
}

void TableReader::Real(const char* key, double min, double max, double& out) {
  const toml::node* node = Find(key);
  if (node == nullptr) return;
  const auto value = node->is_number() ? node->value<double>() : std::nullopt;
  if (value && *value >= min && *value <= max) out = *value;
  else Fail(key, fmt::format("must be a number from {} to {}", min, max));
}

void TableReader::Rate(const char* key, uint64_t& out) {
  std::string text;
  String(key, text);
  if (text.empty()) return;
  if (auto rate = ParseRate(text)) out = *rate;
  else Fail(key, "is '" + text + "': " + rate.error().hint);
}

const toml::table* TableReader::Table(const char* key) {
  const toml::node* node = Find(key);
  if (node != nullptr && !node->is_table()) Fail(key, "must be a table");
  return node == nullptr ? nullptr : node->as_table();
}

std::vector<const toml::table*> TableReader::Tables(const char* key) {
  const toml::node* node = Find(key);
  std::vector<const toml::table*> tables;
  if (node == nullptr) return tables;
  if (!node->is_array_of_tables()) {
    Fail(key, "must be an array of tables: write [[" + std::string(key) + "]]");
    return tables;
  }
  for (const toml::node& element : *node->as_array()) tables.push_back(element.as_table());
  return tables;
}

void TableReader::RejectUnknown() {
  if (table_ == nullptr) return;
  for (const auto& [key, node] : *table_) {
    const std::string word(key.str());
    if (std::find(known_.begin(), known_.end(), word) != known_.end()) continue;
    const auto nearest = std::min_element(known_.begin(), known_.end(), [&](const auto& a, const auto& b) {
      return EditDistance(a, word) < EditDistance(b, word);
    });
    std::string hint = "see mlnetd.toml for the keys";
    if (nearest != known_.end() && EditDistance(*nearest, word) <= 1 + word.size() / 3) {
      hint = "did you mean '" + *nearest + "'?";
    }
    FailAt(key.source(), "unknown key '" + Spelling(word) + "'", hint);
    return;
  }
}

}  // namespace mlnet::control
