// SPDX-License-Identifier: Apache-2.0
// What a process may send to mlnetd's socket: JSON that is taken, or an error.
#include <cstdint>
#include <string_view>

#include "fuzz/require.h"
#include "rpc/message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto message = mlnet::rpc::Decode({reinterpret_cast<const char*>(data), size});
  if (!message) return 0;
  const auto request = mlnet::rpc::AsRequest(*message);
  if (request) {
    const auto again = mlnet::rpc::Decode(mlnet::rpc::EncodeRequest(*request));
    REQUIRE(again && mlnet::rpc::AsRequest(*again)->params == request->params);
    for (const char* key : {"rank", "timeout_ms", "job", "name"}) {
      (void)mlnet::rpc::GetOr<uint32_t>(request->params, key, 0);
      (void)mlnet::rpc::GetOr<int>(request->params, key, 0);
      (void)mlnet::rpc::GetOr<std::string>(request->params, key, "");
    }
  }
  (void)mlnet::rpc::ErrorFromJson(*message);
  return 0;
}
