// SPDX-License-Identifier: Apache-2.0
// The JSON objects of PROTOCOL.md as values: request, reply, error, push, and typed access to fields.
// Why: what comes from the other side of a socket is checked once, here, and never by an exception.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "mlnet/error.h"

namespace mlnet::rpc {

using Json = nlohmann::json;

inline constexpr size_t kMessageBytesMax = 128 * 1024;
inline constexpr size_t kMessageFdsMax = 16;
inline constexpr const char* kDefaultSocket = "/run/mlnet/mlnetd.sock";

/// $MLNET_SOCKET, else kDefaultSocket.
std::string DefaultSocket();

struct Request {
  uint64_t id = 0;  // 0: no reply is wanted
  std::string method;
  Json params = Json::object();
};

std::string EncodeRequest(const Request& request);
std::string EncodeReply(uint64_t id, const Json& result);
std::string EncodeError(uint64_t id, const Error& error);

/// Whoever copies, compares or writes a value goes down into it by calls: what is nested deeper would take all of the stack.
inline constexpr int kDepthMax = 64;
/// Any JSON; kProtocol where it is none, or nested deeper than kDepthMax. Everything that comes from outside is read by this.
Result<Json> ParseJson(std::string_view text);

/// In one line, always valid UTF-8: a name from outside (of an interface, say) may hold any bytes, and a bad one becomes U+FFFD
/// instead of the exception of Json::dump.
std::string Dump(const Json& json);

/// One JSON object, or kProtocol.
Result<Json> Decode(std::string_view bytes);
/// REQUIRES a decoded object; kProtocol when it is no request.
Result<Request> AsRequest(const Json& message);

/// The body of an "error" member, and back.
Json ErrorToJson(const Error& error);
Error ErrorFromJson(const Json& body);

template <typename T>
bool HasType(const Json& value) {
  if constexpr (std::is_same_v<T, bool>) return value.is_boolean();
  else if constexpr (std::is_integral_v<T> && std::is_unsigned_v<T>) return value.is_number_unsigned();
  else if constexpr (std::is_integral_v<T>) return value.is_number_integer();
  else if constexpr (std::is_floating_point_v<T>) return value.is_number();
  else if constexpr (std::is_same_v<T, std::string>) return value.is_string();
  else return true;
}

/// The member `key` of an object as T; nullopt when it is absent or null, kInvalidArgument when it has
/// another type or does not fit.
template <typename T>
Result<std::optional<T>> Find(const Json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || it == object.end() || it->is_null()) return std::optional<T>{};
  if (!HasType<T>(*it)) return Err(ErrorCode::kInvalidArgument, std::string("field '") + key + "' has the wrong type");
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    const bool fits = std::is_unsigned_v<T> ? std::in_range<T>(it->template get<uint64_t>())
                                            : std::in_range<T>(it->template get<int64_t>());
    if (!fits) return Err(ErrorCode::kInvalidArgument, std::string("field '") + key + "' is out of range");
  }
  return std::optional<T>{it->template get<T>()};
}

/// As Find, but the member must be there.
template <typename T>
Result<T> Get(const Json& object, const char* key) {
  auto found = Find<T>(object, key);
  if (!found) return tl::make_unexpected(found.error());
  if (!*found) return Err(ErrorCode::kInvalidArgument, std::string("field '") + key + "' is missing");
  return std::move(**found);
}

/// As Find, with a value for an absent member.
template <typename T>
Result<T> GetOr(const Json& object, const char* key, T otherwise) {
  auto found = Find<T>(object, key);
  if (!found) return tl::make_unexpected(found.error());
  return *found ? std::move(**found) : std::move(otherwise);
}

}  // namespace mlnet::rpc
