// SPDX-License-Identifier: Apache-2.0
#include "daemon/etcd_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

namespace mlnet::daemon::etcd {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> MakeValues() {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kAlphabet.size(); ++i) values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
  return values;
}
constexpr std::array<int8_t, 256> kValues = MakeValues();

// The member, or null.
const Json& At(const Json& object, const char* name) {
  static const Json kNone;
  const auto it = object.find(name);
  return it != object.end() ? *it : kNone;
}

// The elements of an array; none of anything else.
const Json& Array(const Json& object, const char* name) {
  static const Json kNone = Json::array();
  const Json& at = At(object, name);
  return at.is_array() ? at : kNone;
}

}  // namespace

std::string ToBase64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) text += i + j > bytes.size() ? '=' : kAlphabet[group >> (18 - 6 * j) & 63];
  }
  return text;
}

std::string FromBase64(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t group = 0;
  int bits = 0;
  const std::string_view digits = text.substr(0, text.find_last_not_of('=') + 1);
  for (const char c : digits) {
    const int value = kValues[static_cast<unsigned char>(c)];
    if (value < 0) return "";
    group = group << 6 | static_cast<uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>(group >> bits & 0xff);
  }
  return bytes;
}

std::string Text(const Json& object, const char* name) {
  const Json& at = At(object, name);
  return at.is_string() ? at.get<std::string>() : "";
}

bool IsTrue(const Json& object, const char* name) { return At(object, name) == true; }

const Json& Object(const Json& object, const char* name) {
  static const Json kNone = Json::object();
  const Json& at = At(object, name);
  return at.is_object() ? at : kNone;
}

std::optional<int64_t> ToNumber(const std::string& text, int64_t min, int64_t max) {
  int64_t number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || end != text.data() + text.size() || number < min || number > max) return std::nullopt;
  return number;
}

int64_t Number(const Json& object, const char* name) {
  return ToNumber(Text(object, name), 0, std::numeric_limits<int64_t>::max() - 1).value_or(0);
}

std::string EndOf(const std::string& prefix) {
  std::string end = prefix;
  ++end.back();  // prefixes end in '/'
  return end;
}

Json Get(const std::string& key) { return {{"request_range", {{"key", ToBase64(key)}}}}; }

Json GetAll(const std::string& prefix) {
  return {{"request_range", {{"key", ToBase64(prefix)}, {"range_end", ToBase64(EndOf(prefix))}}}};
}

Json Put(const std::string& key, const std::string& value, int64_t lease) {
  return {{"request_put", {{"key", ToBase64(key)}, {"value", ToBase64(value)}, {"lease", std::to_string(lease)}}}};
}

Json Delete(const std::string& key) { return {{"request_delete_range", {{"key", ToBase64(key)}}}}; }

Json DeleteAll(const std::string& prefix) {
  return {{"request_delete_range", {{"key", ToBase64(prefix)}, {"range_end", ToBase64(EndOf(prefix))}}}};
}

Json IsAt(const std::string& key, int64_t mod_revision) {
  return {{"key", ToBase64(key)}, {"target", "MOD"}, {"result", "EQUAL"}, {"mod_revision", std::to_string(mod_revision)}};
}

Json Exists(const std::string& key) {
  return {{"key", ToBase64(key)}, {"target", "CREATE"}, {"result", "GREATER"}, {"create_revision", "0"}};
}

Json Equals(const std::string& key, const std::string& value) {
  return {{"key", ToBase64(key)}, {"target", "VALUE"}, {"result", "EQUAL"}, {"value", ToBase64(value)}};
}

Json Txn(std::vector<Json> conditions, std::vector<Json> operations) {
  return {{"compare", std::move(conditions)}, {"success", std::move(operations)}};
}

std::vector<KeyValue> KeyValues(const Json& range_answer) {
  std::vector<KeyValue> all;
  for (const Json& kv : Array(range_answer, "kvs")) {
    all.push_back({FromBase64(Text(kv, "key")), FromBase64(Text(kv, "value")), Number(kv, "mod_revision")});
  }
  return all;
}

std::vector<KeyValue> ReadBy(const Json& txn_answer, size_t index) {
  const Json& responses = Array(txn_answer, "responses");
  return index < responses.size() ? KeyValues(Object(responses[index], "response_range")) : std::vector<KeyValue>{};
}

size_t NumResponses(const Json& txn_answer) { return Array(txn_answer, "responses").size(); }

std::optional<int64_t> LatestOf(const Json& message) {
  const Json& result = Object(message, "result");
  if (!message.contains("result") || IsTrue(result, "canceled")) return std::nullopt;  // compacted, or the token is no longer good
  int64_t latest = 0;
  for (const Json& event : Array(result, "events")) latest = std::max(latest, Number(Object(event, "kv"), "mod_revision"));
  return latest;
}

}  // namespace mlnet::daemon::etcd
