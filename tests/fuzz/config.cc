// SPDX-License-Identifier: Apache-2.0
// mlnetd.toml: any text is a configuration or an error that names its place.
#include <cstdint>
#include <string_view>

#include "control/config.h"
#include "fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = mlnet::control::ParseConfig({reinterpret_cast<const char*>(data), size}, "fuzz.toml", "host");
  if (config) {
    REQUIRE(mlnet::control::CheckSpec(config->job));
    REQUIRE(mlnet::control::IsName(config->host));
  } else {
    REQUIRE(config.error().message.rfind("fuzz.toml", 0) == 0);
  }
  return 0;
}
