// SPDX-License-Identifier: Apache-2.0
// What the slot engine cannot do goes to an inner Gloo group, visibly: one log line and one counter per
// (collective, dtype, op). MLNET_FALLBACK=none refuses it by name instead.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "torch_compat.h"

namespace mlnet::torch_backend {

/// Names of what was asked for, for log, counters and errors.
struct Request {
  std::string collective;  // "all_reduce"
  std::string dtype;       // "int64"; empty where there is none
  std::string op;          // "MAX"; empty where there is none
  std::string Key() const;
};

/// What needs no Gloo, for messages.
extern const char* const kNativeHelp;

const char* OpName(c10d::ReduceOp::RedOpType op);

class Fallback {
 public:
  Fallback(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout);

  /// The Gloo group, made at the first call; all ranks call this for the same collective.
  BackendBase& For(const Request& request);
  /// How often each request went to Gloo, by Request::Key().
  std::map<std::string, uint64_t> Counts() const;
  void Close();

 private:
  void Connect();

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;  // protects the members below
  c10::intrusive_ptr<BackendBase> gloo_;
  std::map<std::string, uint64_t> counts_;
};

}  // namespace mlnet::torch_backend
