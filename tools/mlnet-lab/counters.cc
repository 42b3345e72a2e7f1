// SPDX-License-Identifier: Apache-2.0
#include "counters.h"

#include "network.h"
#include "process.h"

namespace mlnet::lab {

Result<std::map<std::string, LinkTraffic>> ReadTraffic(const Paths& paths) {
  const auto shown = Run({"tc", "-n", paths.Netns(Paths::kSwitch), "-j", "-s", "qdisc", "show"});
  if (!shown) return tl::make_unexpected(shown.error());
  std::map<std::string, LinkTraffic> links;
  const std::string port = PortName(""), shaper = ShaperName("");
  try {
    for (const Json& queue : Json::parse(*shown)) {
      const auto device = queue.at("dev").get<std::string>();
      if (!queue.value("root", false)) continue;
      const Traffic traffic{queue.at("bytes"), queue.at("packets"), queue.at("drops")};
      if (device.starts_with(port)) links[device.substr(port.size())].rx = traffic;
      if (device.starts_with(shaper)) links[device.substr(shaper.size())].tx = traffic;
    }
  } catch (const Json::exception& e) {
    return Err(ErrorCode::kProtocol, std::string("tc -s qdisc: ") + e.what());
  }
  return links;
}

}  // namespace mlnet::lab
