// SPDX-License-Identifier: Apache-2.0
// Messages of userspace/rpc/PROTOCOL.md: what goes in comes out, what is wrong is an error value.
#include "rpc/message.h"

#include <gtest/gtest.h>

namespace mlnet::rpc {
namespace {

TEST(message, request_survives_encoding) {
  const auto request = Decode(EncodeRequest({7, "join", {{"rank", 3}}})).and_then(AsRequest);
  ASSERT_TRUE(request) << request.error().ToString();
  EXPECT_EQ(request->id, 7u);
  EXPECT_EQ(request->method, "join");
  EXPECT_EQ(Get<int>(request->params, "rank").value(), 3);
}

TEST(message, request_without_reply_carries_no_id) {
  EXPECT_EQ(Json::parse(EncodeRequest({0, "leave", Json::object()})), Json::parse(R"({"method":"leave","params":{}})"));
}

TEST(message, error_keeps_code_message_and_hint) {
  const Error error{ErrorCode::kRankLost, "rank 2 exited", "see its log"};
  const Json body = Json::parse(EncodeError(9, error));
  EXPECT_EQ(body["id"], 9);
  EXPECT_EQ(body["error"]["code"], "E_RANK_LOST");
  const Error back = ErrorFromJson(body["error"]);
  EXPECT_EQ(back.code, ErrorCode::kRankLost);
  EXPECT_EQ(back.message, "rank 2 exited");
  EXPECT_EQ(back.hint, "see its log");
}

TEST(message, bytes_that_are_no_object_are_a_protocol_error) {
  for (const char* bytes : {"", "{", "[1]", "7", "\xff\xfe"}) {
    const auto decoded = Decode(bytes);
    ASSERT_FALSE(decoded) << bytes;
    EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol);
  }
}

TEST(message, what_is_nested_without_end_is_refused_and_takes_no_stack) {
  const auto nested = [](size_t depth) { return R"({"method":"x","params":{"a":)" + std::string(depth, '[') + std::string(depth, ']') + "}}"; };
  const auto request = Decode(nested(kDepthMax - 2)).and_then(AsRequest);
  ASSERT_TRUE(request) << request.error().ToString();
  EXPECT_TRUE(Decode(EncodeRequest(*request)));
  for (const size_t depth : {size_t{kDepthMax}, size_t{60'000}}) {
    const auto decoded = Decode(nested(depth));
    ASSERT_FALSE(decoded) << depth;
    EXPECT_EQ(decoded.error().code, ErrorCode::kProtocol);
  }
}

TEST(message, request_without_method_or_with_odd_params_is_refused) {
  for (const char* bytes : {R"({"id":1})", R"({"id":1,"method":3})", R"({"id":-1,"method":"x"})", R"({"method":"x","params":[]})"}) {
    const auto request = Decode(bytes).and_then(AsRequest);
    ASSERT_FALSE(request) << bytes;
    EXPECT_EQ(request.error().code, ErrorCode::kProtocol);
  }
}

TEST(message, fields_are_checked_for_type_and_range) {
  const Json object = Json::parse(R"({"n":300,"neg":-1,"text":"a","yes":true,"none":null,"half":0.5})");
  EXPECT_EQ(Get<uint16_t>(object, "n").value(), 300);
  EXPECT_FALSE(Get<uint8_t>(object, "n"));
  EXPECT_FALSE(Get<uint32_t>(object, "neg"));
  EXPECT_EQ(Get<int>(object, "neg").value(), -1);
  EXPECT_FALSE(Get<int>(object, "text"));
  EXPECT_FALSE(Get<int>(object, "half"));
  EXPECT_FALSE(Get<bool>(object, "n"));
  EXPECT_EQ(GetOr<int>(object, "none", 5).value(), 5);
  EXPECT_EQ(GetOr<int>(object, "absent", 6).value(), 6);
  EXPECT_FALSE(Get<std::string>(object, "absent"));
  EXPECT_EQ(Get<std::string>(object, "text").value(), "a");
}

TEST(message, text_that_is_not_utf8_does_not_throw) {
  EXPECT_NO_THROW(EncodeError(1, Error{ErrorCode::kSystem, "bad \xff name", ""}));
}

}  // namespace
}  // namespace mlnet::rpc
