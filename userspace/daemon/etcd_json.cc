// SPDX-License-Identifier: Apache-2.0
#include "daemon/etcd_json.h"

#include <array>
#include <charconv>

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

std::string Text(int64_t number) { return std::to_string(number); }

std::string StringAt(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
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
  for (const char c : text) {
    if (c == '=') break;
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

int64_t Number(const Json& object, const char* name) {
  const std::string text = StringAt(object, name);
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
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
  return {{"request_put", {{"key", ToBase64(key)}, {"value", ToBase64(value)}, {"lease", Text(lease)}}}};
}

Json Delete(const std::string& key) { return {{"request_delete_range", {{"key", ToBase64(key)}}}}; }

Json DeleteAll(const std::string& prefix) {
  return {{"request_delete_range", {{"key", ToBase64(prefix)}, {"range_end", ToBase64(EndOf(prefix))}}}};
}

Json IsAt(const std::string& key, int64_t mod_revision) {
  return {{"key", ToBase64(key)}, {"target", "MOD"}, {"result", "EQUAL"}, {"mod_revision", Text(mod_revision)}};
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
  if (!range_answer.contains("kvs")) return all;
  for (const Json& kv : range_answer["kvs"]) {
    all.push_back({FromBase64(StringAt(kv, "key")), FromBase64(StringAt(kv, "value")), Number(kv, "mod_revision")});
  }
  return all;
}

std::vector<KeyValue> ReadBy(const Json& txn_answer, size_t index) {
  const auto responses = txn_answer.find("responses");
  if (responses == txn_answer.end() || index >= responses->size() || !(*responses)[index].contains("response_range")) return {};
  return KeyValues((*responses)[index]["response_range"]);
}

}  // namespace mlnet::daemon::etcd
