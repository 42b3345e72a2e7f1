// SPDX-License-Identifier: Apache-2.0
// The public API of libmlnet: join a job through the local mlnetd, then call collectives.
// New here? Read this file, then ../../engine.h, the spine of the tensor path.
//
//   auto comm = mlnet::Communicator::Join({.job = "demo", .rank = 0, .world_size = 4});
//   auto work = (*comm)->AllReduce(grad.data(), grad.data(), grad.size(), mlnet::DataType::kFloat32);
//   if (auto ok = work->Wait(); !ok) die(ok.error().ToString());
//
// Every rank must issue the same collectives in the same order within a traffic class.
// Thread safety: a Communicator may be called from several threads; each call is one place in the order.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "mlnet/error.h"

namespace mlnet {

enum class DataType : uint8_t { kFloat32 = 0, kInt32 = 1 };
enum class ReduceOp : uint8_t { kSum = 0 };

/// Bytes of one element.
size_t SizeOf(DataType dtype);

struct JoinOptions {
  std::string job;                // rendezvous name, the same on all ranks; 1..63 of [A-Za-z0-9._-]
  int rank = 0;                   // 0..world_size-1
  int world_size = 1;             // 1..64
  std::string socket;             // mlnetd's socket; empty: $MLNET_SOCKET, else /run/mlnet/mlnetd.sock
  std::chrono::milliseconds timeout{30000};  // for joining, and the default of every collective
};

struct CallOptions {
  int traffic_class = 0;                 // 0..7; classes never wait for each other
  std::chrono::milliseconds timeout{0};  // 0: the communicator's default
};

/// Counters of this rank since it joined.
struct CommStats {
  uint64_t packets_sent = 0;           // contributions, first time
  uint64_t retransmits = 0;            // contributions sent again, whatever the reason
  uint64_t early_resends = 0;          // of these: because later results overtook
  uint64_t results = 0;                // result packets consumed
  uint64_t summed_in_kernel = 0;       // contributions of this rank that an XDP program has summed
  uint64_t summed_in_user_space = 0;   // contributions summed in this process instead
  uint64_t probes = 0;                 // probe packets sent
  uint64_t wide_blocks = 0;            // blocks whose smallest element keeps under 12 bits
  uint64_t held = 0, busy = 0;         // answers HELD and BUSY
  uint64_t sleeps = 0;                 // times the engine slept instead of polling
  uint64_t rtt_us = 0;                 // smoothed round trip
};

/// Handle of one collective. The buffers must stay valid until it is done.
class Work {
 public:
  virtual ~Work() = default;
  virtual bool IsDone() const = 0;
  /// Waits until done, at most `timeout` (0: the collective's own deadline). An error is final:
  /// kTimeout names the missing ranks, kMismatch shows both collectives, kRankLost names the dead.
  virtual Result<void> Wait(std::chrono::milliseconds timeout = std::chrono::milliseconds{0}) = 0;
};

class Communicator {
 public:
  /// Blocks until all ranks of the job have joined and the data path is ready.
  static Result<std::unique_ptr<Communicator>> Join(const JoinOptions& options);
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  /// Element-wise sum over all ranks; `in` may equal `out`. count may be 0.
  /// float32: |error| <= n * M * 2^(ceil(log2 n) + 1 - 32) per block of 32 elements (M: the largest
  /// magnitude in the block over all ranks), plus the rounding of the result to float32; the same
  /// bits on every rank. int32: exact, wrapping. A non-finite input raises kNonFinite on all ranks.
  virtual std::shared_ptr<Work> AllReduce(const void* in, void* out, size_t count, DataType dtype,
                                          ReduceOp op = ReduceOp::kSum, const CallOptions& options = {}) = 0;
  /// Copies `bytes` from rank `root` to all.
  virtual std::shared_ptr<Work> Broadcast(void* buffer, size_t bytes, int root,
                                          const CallOptions& options = {}) = 0;
  /// Rank r's `bytes` land at out + r * bytes on all ranks.
  virtual std::shared_ptr<Work> AllGather(const void* in, void* out, size_t bytes,
                                          const CallOptions& options = {}) = 0;
  /// Done when every rank has called it.
  virtual std::shared_ptr<Work> Barrier(const CallOptions& options = {}) = 0;

  virtual CommStats Stats() const = 0;
};

}  // namespace mlnet
