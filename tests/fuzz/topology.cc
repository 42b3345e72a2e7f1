// SPDX-License-Identifier: Apache-2.0
// Topology files, of the lab and of the testbed of virtual machines: any text is a topology that can be built and planned, or an error
// that names the file.
#include <set>

#include "fuzz/require.h"
#include "plan/planner.h"
#include "plan/render.h"
#include "plan/site.h"
#include "state.h"
#include "topology.h"

namespace {

using namespace mlnet;

void Build(const lab::Topology& topology) {
  std::set<std::string> names, addresses;
  for (const lab::Host& host : topology.hosts) {
    REQUIRE(names.insert(host.name).second && addresses.insert(host.address).second);
    for (const lab::Faults* faults : {&host.tx, &host.rx}) {
      for (const uint32_t ppm : {faults->loss_ppm, faults->duplicate_ppm, faults->reorder_ppm, faults->corrupt_ppm}) REQUIRE(ppm <= 1'000'000);
      REQUIRE(faults->delay_us <= 10'000'000);
    }
  }
  for (const lab::Rack& rack : topology.racks) REQUIRE(names.insert(rack.name).second && rack.up_bps && rack.down_bps);
  REQUIRE(lab::LinksOf(topology).size() == names.size());
  REQUIRE(!lab::TopologyToJson(lab::Paths(topology.name), topology).dump().empty());
}

// As mlnetctl asks for it.
void Plan(const lab::Topology& topology) {
  plan::Cluster cluster;
  plan::Job job;
  cluster.oversubscription = topology.oversubscription;
  for (const lab::Host& host : topology.hosts) {
    const auto bps = static_cast<double>(host.rate_bps);
    cluster.hosts.push_back({host.name, host.rack, bps, bps});
    if (!host.is_aggregator) job.host_of_rank.insert(job.host_of_rank.end(), 2, host.name);
  }
  for (const lab::Rack& rack : topology.racks)
    cluster.racks.push_back({rack.name, static_cast<double>(rack.up_bps.value_or(0)), static_cast<double>(rack.down_bps.value_or(0))});
  job.bytes = 1 << 20;
  plan::Settings settings;
  plan::FitToMtu(settings, static_cast<int>(topology.mtu));
  const auto made = plan::MakePlan(cluster, job, settings);
  if (!made) return;
  REQUIRE(made->choice().is_possible() && !made->choice().trees.empty());
  REQUIRE(!plan::RenderText(*made).empty());
  REQUIRE(!plan::RenderJson(*made, cluster, job).dump().empty());
  REQUIRE(!plan::RenderDot(*made, cluster, job).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto read = lab::ParseTopology({reinterpret_cast<const char*>(data), size}, "fuzz.yaml");
  if (!read) {
    REQUIRE(read.error().message.starts_with("fuzz.yaml: "));
    return 0;
  }
  if (read->hosts.size() <= 64) Plan(*read);  // mlnetctl plans without Finish
  if (const auto topology = lab::Finish(*read)) {
    Build(*topology);
    Plan(*topology);
  }
  return 0;
}
