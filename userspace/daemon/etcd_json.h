// SPDX-License-Identifier: Apache-2.0
// What etcd's v3 JSON gateway wants and gives: keys and values in base64, 64-bit numbers as text, zeros left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/model.h"

namespace mlnet::daemon::etcd {

using control::Json;

std::string ToBase64(std::string_view bytes);
/// Empty where the text is no base64.
std::string FromBase64(std::string_view text);

// Members of an answer, whatever that is: 0, "", false and an empty object where there is none of that type.
int64_t Number(const Json& object, const char* name);
std::string Text(const Json& object, const char* name);
bool IsTrue(const Json& object, const char* name);
const Json& Object(const Json& object, const char* name);

/// The whole text as a number within the limits; nullopt where it is anything else.
std::optional<int64_t> ToNumber(const std::string& text, int64_t min, int64_t max);

/// What follows the last slash of a key: the whole one where it has none.
inline std::string AfterSlash(const std::string& key) { return key.substr(key.rfind('/') + 1); }

struct KeyValue {
  std::string key;
  std::string value;
  int64_t mod_revision = 0;  // of its last write
};

/// The keys that begin with `prefix` end before this.
std::string EndOf(const std::string& prefix);

// Operations of a transaction.
Json Get(const std::string& key);
Json GetAll(const std::string& prefix);
Json Put(const std::string& key, const std::string& value, int64_t lease = 0);
Json Delete(const std::string& key);
Json DeleteAll(const std::string& prefix);

// Conditions of a transaction. A key that does not exist has mod_revision 0.
Json IsAt(const std::string& key, int64_t mod_revision);
Json Exists(const std::string& key);
Json Equals(const std::string& key, const std::string& value);

Json Txn(std::vector<Json> conditions, std::vector<Json> operations);

/// The key-value pairs that operation `index` of a transaction read.
std::vector<KeyValue> ReadBy(const Json& txn_answer, size_t index);
size_t NumResponses(const Json& txn_answer);
std::vector<KeyValue> KeyValues(const Json& range_answer);
inline int64_t Revision(const Json& answer) { return Number(Object(answer, "header"), "revision"); }

/// The latest revision in a message of a watch, 0 where it tells of none; nullopt: the watch is over.
std::optional<int64_t> LatestOf(const Json& message);

}  // namespace mlnet::daemon::etcd
