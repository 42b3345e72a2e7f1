// SPDX-License-Identifier: Apache-2.0
#include "rendezvous.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace mlnet::torch_backend {
namespace {

constexpr const char* kJobKey = "mlnet/job";

std::string NewJobName() {
  std::random_device entropy;
  const uint64_t bits = (static_cast<uint64_t>(entropy()) << 32) | entropy();
  char hex[17];
  std::snprintf(hex, sizeof(hex), "%016llx", static_cast<unsigned long long>(bits));
  const char* prefix = std::getenv("MLNET_JOB");
  return std::string(prefix != nullptr && *prefix != '\0' ? prefix : "torch") + "-" + hex;
}

std::string AgreeOnJobName(c10d::Store& store, int rank) {
  if (rank == 0) {
    const std::string name = NewJobName();
    store.set(kJobKey, std::vector<uint8_t>(name.begin(), name.end()));
    return name;
  }
  const std::vector<uint8_t> name = store.get(kJobKey);
  return std::string(name.begin(), name.end());
}

}  // namespace

Membership JoinThroughStore(c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout, const JobOptions& job) {
  JoinOptions options;
  options.job = AgreeOnJobName(store, rank);
  options.rank = rank;
  options.world_size = size;
  options.timeout = timeout;
  options.classes = job.classes;
  options.mac = job.mac;
  const char* widens = std::getenv("MLNET_WIDEN");
  options.widens_lanes = widens != nullptr && std::string_view(widens) == "1";
  auto comm = Communicator::Join(options);
  if (!comm) {
    throw std::runtime_error("mlnet: rank " + std::to_string(rank) + " of " + std::to_string(size) +
                             " cannot join job " + options.job + ": " + comm.error().ToString());
  }
  return {options.job, std::make_unique<CallQueue>(std::move(*comm))};
}

}  // namespace mlnet::torch_backend
