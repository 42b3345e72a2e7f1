// SPDX-License-Identifier: Apache-2.0
#include "fallback.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "local_address.h"

namespace mlnet::torch_backend {
namespace {

void AddDevices(c10d::ProcessGroupGloo::Options& options) {
  const char* names = std::getenv("GLOO_SOCKET_IFNAME");
  if (names == nullptr || *names == '\0') {
    options.devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(ReachableAddress()));
    return;
  }
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    options.devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
  }
}

bool Forbidden() {
  const char* choice = std::getenv("MLNET_FALLBACK");
  if (choice == nullptr || *choice == '\0' || std::string(choice) == "gloo") return false;
  if (std::string(choice) == "none") return true;
  throw std::runtime_error(std::string("mlnet: MLNET_FALLBACK=") + choice + " is unknown (use gloo or none)");
}

}  // namespace

const char* const kNativeHelp =
    "the slot engine has SUM, AVG, MIN and MAX of every real dtype, BAND, BOR and BXOR of integers and bool, and "
    "moves dense tensors of any dtype";

const char* OpName(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM: return "SUM";
    case c10d::ReduceOp::AVG: return "AVG";
    case c10d::ReduceOp::PRODUCT: return "PRODUCT";
    case c10d::ReduceOp::MIN: return "MIN";
    case c10d::ReduceOp::MAX: return "MAX";
    case c10d::ReduceOp::BAND: return "BAND";
    case c10d::ReduceOp::BOR: return "BOR";
    case c10d::ReduceOp::BXOR: return "BXOR";
    case c10d::ReduceOp::PREMUL_SUM: return "PREMUL_SUM";
    default: return "UNUSED";
  }
}

std::string Request::Key() const {
  std::string key = collective;
  if (!dtype.empty()) key += " " + dtype;
  if (!op.empty()) key += " " + op;
  return key;
}

Fallback::Fallback(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout)
    : store_(std::move(store)), rank_(rank), size_(size), timeout_(timeout) {}

void Fallback::Connect() {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout_);
  AddDevices(*options);
  options->threads = static_cast<int>(options->devices.size()) * 2;
  auto prefixed = c10::make_intrusive<c10d::PrefixStore>("mlnet/gloo", store_);
  gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed, rank_, size_, options);
}

BackendBase& Fallback::For(const Request& request) {
  const std::string key = request.Key();
  if (Forbidden()) {
    throw std::runtime_error("mlnet: " + key + " is not supported: " + kNativeHelp +
                             " (MLNET_FALLBACK=none forbids to hand it to Gloo)");
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (counts_[key]++ == 0) {
    std::fprintf(stderr, "mlnet: rank %d: %s goes to Gloo: %s\n", rank_, key.c_str(), kNativeHelp);
  }
  if (!gloo_) Connect();
  return *gloo_;
}

std::map<std::string, uint64_t> Fallback::Counts() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

void Fallback::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  gloo_.reset();
}

}  // namespace mlnet::torch_backend
