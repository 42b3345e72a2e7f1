// SPDX-License-Identifier: Apache-2.0
#include "rpc/message.h"

#include <cstdlib>

#include "base/errno_error.h"

namespace mlnet::rpc {
namespace {

std::string StringOr(const Json& object, const char* key, std::string otherwise) {
  auto found = Find<std::string>(object, key);
  return found && *found ? std::move(**found) : std::move(otherwise);
}

}  // namespace

std::string DefaultSocket() {
  const char* path = std::getenv("MLNET_SOCKET");
  return path != nullptr && *path != '\0' ? path : kDefaultSocket;
}

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string EncodeRequest(const Request& request) {
  Json message = {{"method", request.method}, {"params", request.params}};
  if (request.id != 0) message["id"] = request.id;
  return Dump(message);
}

std::string EncodeReply(uint64_t id, const Json& result) { return Dump({{"id", id}, {"result", result}}); }

std::string EncodeError(uint64_t id, const Error& error) {
  return Dump({{"id", id}, {"error", ErrorToJson(error)}});
}

Result<Json> ParseJson(std::string_view text) {
  bool is_too_deep = false;
  const auto look = [&](int depth, Json::parse_event_t, Json&) {
    is_too_deep |= depth > kDepthMax;
    return !is_too_deep;  // false: forgets what it has read
  };
  Json json = Json::parse(text, look, /*allow_exceptions=*/false);
  if (is_too_deep) return Err(ErrorCode::kProtocol, "JSON that is nested more than " + std::to_string(kDepthMax) + " deep");
  if (json.is_discarded()) return Err(ErrorCode::kProtocol, "not JSON");
  return json;
}

Result<Json> Decode(std::string_view bytes) {
  auto message = ParseJson(bytes);
  if (!message || !message->is_object()) return Err(ErrorCode::kProtocol, "a message is not a JSON object");
  return message;
}

Result<Request> AsRequest(const Json& message) {
  auto id = GetOr<uint64_t>(message, "id", 0);
  if (!id) return Err(ErrorCode::kProtocol, id.error().message);
  auto method = Get<std::string>(message, "method");
  if (!method) return Err(ErrorCode::kProtocol, method.error().message);
  const auto params = message.find("params");
  if (params != message.end() && !params->is_object() && !params->is_null()) {
    return Err(ErrorCode::kProtocol, "'params' is not an object");
  }
  const bool has_params = params != message.end() && params->is_object();
  return Request{*id, std::move(*method), has_params ? *params : Json::object()};
}

Json ErrorToJson(const Error& error) {
  return {{"code", ErrorCodeName(error.code)}, {"message", error.message}, {"hint", error.hint}};
}

Error ErrorFromJson(const Json& body) {
  const auto code = ErrorCodeFromName(StringOr(body, "code", ""));
  return Error{code.value_or(ErrorCode::kProtocol), StringOr(body, "message", "an error without a message"),
               StringOr(body, "hint", "")};
}

}  // namespace mlnet::rpc
