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
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mlnet/error.h"

namespace mlnet {

enum class DataType : uint8_t {
  kFloat32 = 0,
  kInt32 = 1,
  kFloat64 = 2,
  kFloat16 = 3,
  kBFloat16 = 4,
  kInt8 = 5,
  kUint8 = 6,
  kInt16 = 7,
  kInt64 = 8,
  kBool = 9,  // one byte, 0 or 1
};
enum class ReduceOp : uint8_t { kSum = 0, kMin = 1, kMax = 2, kBitAnd = 3, kBitOr = 4, kBitXor = 5 };

/// Lanes that sums of floats travel in. kInt32 keeps every element accurate; the others are lossy, for
/// gradients, and only where asked for.
enum class WireType : uint8_t { kInt32 = 0, kInt16 = 1, kInt8 = 2 };

/// Bytes of one element.
size_t SizeOf(DataType dtype);
/// "float32", "sum", "int16".
const char* NameOf(DataType dtype);
const char* NameOf(ReduceOp op);
const char* NameOf(WireType wire);

struct JoinOptions {
  std::string job;                // rendezvous name, the same on all ranks; 1..63 of [A-Za-z0-9._-]
  int rank = 0;                   // 0..world_size-1
  int world_size = 1;             // 1..kRanksMax (limits.h)
  std::string socket;             // mlnetd's socket; empty: $MLNET_SOCKET, else /run/mlnet/mlnetd.sock
  /// What the job will transfer in all, in bytes of each rank's buffers: a hint for clusters that serve the shortest
  /// job first. 0: $MLNET_WORK_BYTES, else not known.
  uint64_t work_bytes = 0;
  /// Traffic classes (1 to 8) of a job that nobody has declared; the first rank's count. 0: as mlnetd is configured.
  int classes = 0;
  /// Packets of a job that nobody has declared carry a tag, made with a key of the job; one rank that asks for it is
  /// enough, if it is the first. Also by $MLNET_MAC=1.
  bool mac = false;
  std::chrono::milliseconds timeout{30000};  // for joining, and the default of every collective
  /// Float sums of at most so many bytes over all ranks together are gathered as they are and added in rank
  /// order by each rank (counted as summed_in_user_space). The same on all ranks; 0: never.
  size_t small_bytes = 16384;
  /// Where a wire type leaves too few levels (int8 with more than 16 ranks): true takes the next wider one and says
  /// so once on stderr; false refuses the call. The same on all ranks.
  bool widens_lanes = false;
  /// True: sums are the kernel's or none, and a job that finds no aggregator or loses one fails. False: its ranks sum by themselves then, in a
  /// ring over TCP, with the same bits; unless $MLNET_REQUIRE_MODE is "kernel", or the job requires it.
  bool requires_kernel = false;
};

struct CallOptions {
  /// 0..7. Classes never wait for each other; while a higher one has packets to send and its answers come, lower ones
  /// send nothing.
  int traffic_class = 0;
  std::chrono::milliseconds timeout{0};  // 0: the communicator's default
  WireType wire = WireType::kInt32;      // sums of float32, float16 and bfloat16
  /// Sums of floats: every element keeps a relative accuracy, however much larger its neighbours are. False: only
  /// the bound of the block holds, which is enough for gradients and costs nothing where their range is wide.
  bool keeps_small = true;
  bool is_stochastic = false;            // kInt16, kInt8: round up or down at random, right on average; repeatable
  /// Sums of float32: receives what rounding took from this rank's input, element by element (error
  /// feedback: add it to the next input). Valid like the other buffers; null: not wanted.
  float* residual = nullptr;
  /// One of the calls that a larger tensor was cut into, at multiples of 128 elements: the bits are those of one call for
  /// all of it. The same on all ranks.
  bool is_part = false;
  /// Called once when the work is done, well or not: by the communicator's own thread, or by the caller's where the call
  /// ends at once. It must not block or close the communicator; it may make calls.
  std::function<void(const Result<void>&)> on_done{};
};

struct ShrinkOptions {
  /// How long ranks wait for others that do not call Shrink: the first that waited so long decides that those are lost. As long
  /// as a rank may compute between two collectives.
  std::chrono::milliseconds wait{10000};
  std::chrono::milliseconds timeout{30000};  // for all of it; longer than `wait`
};

/// How a communicator came out of the one before.
struct ShrinkReport {
  std::vector<int> former_ranks;  // by rank: its rank before; empty: the communicator is not one that Shrink gave
  std::vector<int> lost;          // the ranks before that have no place in it
  std::string why;                // who was lost, and how
};

/// Counters of this rank since it joined.
struct CommStats {
  uint64_t packets_sent = 0;           // contributions, first time
  uint64_t retransmits = 0;            // contributions sent again, whatever the reason
  uint64_t early_resends = 0;          // of these: because later results overtook
  uint64_t results = 0;                // result packets consumed
  uint64_t bytes = 0;                  // of the buffers of calls, done so far, about
  uint64_t summed_in_kernel = 0;       // contributions of this rank that an XDP program has summed
  uint64_t summed_in_user_space = 0;   // contributions summed in this process instead
  uint64_t probes = 0;                 // probe packets sent
  uint64_t wide_blocks = 0;            // blocks of 32 elements that needed a second lane, or were gathered
  uint64_t nonfinite_packets = 0;      // packets with a NaN or an infinity on some rank
  uint64_t repairs = 0;                // packets of the fix-up stream
  uint64_t held = 0, busy = 0;         // answers HELD and BUSY
  uint64_t sleeps = 0;                 // times the engine slept until something woke it
  uint64_t rtt_us = 0;                 // smoothed round trip
  uint64_t marked = 0;                 // results that say: a queue on the way of this packet, or of another rank's, was filling (ECN)
  uint64_t summed_in_ring = 0;         // of summed_in_user_space: by the ring of ranks, for want of an aggregator
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
  /// Traffic classes of the job.
  virtual int classes() const = 0;
  /// Bytes of lanes that share the error bound of AllReduce: 128, or 256 in jobs whose NICs all have an MTU of 1628 or more.
  virtual size_t block_bytes() const = 0;

  /// Element-wise over all ranks; `in` may equal `out`. count may be 0. The same bits on every rank.
  ///   integers  exact; sums wrap. kBool sums are logical or
  ///   kMin, kMax  exact, every type; a NaN on any rank gives NaN
  ///   kBitAnd, kBitOr, kBitXor  integers and kBool
  ///   sums of floats  NaN and infinities exactly as IEEE 754 has them. Finite elements, with L lane bits, n
  ///   ranks and M the largest magnitude in a block (block_bytes; kFloat64: twice that) over all ranks:
  ///     |error| <= n * M * 2^(ceil(log2 n) + 1 - L), twice that if is_stochastic, L = 32, 16, 8; kFloat64 64;
  ///     kInt32 wire, keeps_small: and |error| <= 2^-12 * the sum of the magnitudes; kFloat64: 2^-24 of it;
  ///   plus one rounding to float32 and to the type. Up to JoinOptions::small_bytes: float adds in rank order.
  virtual std::shared_ptr<Work> AllReduce(const void* in, void* out, size_t count, DataType dtype,
                                          ReduceOp op = ReduceOp::kSum, const CallOptions& options = {}) = 0;
  /// AllReduce whose result only `root` gets; elsewhere `out` may be null and is not touched.
  virtual std::shared_ptr<Work> Reduce(const void* in, void* out, size_t count, DataType dtype, int root,
                                       ReduceOp op = ReduceOp::kSum, const CallOptions& options = {}) = 0;
  /// AllReduce of world_size * count elements, of which this rank gets the rank-th `count`. `out` may be
  /// that part of `in`.
  virtual std::shared_ptr<Work> ReduceScatter(const void* in, void* out, size_t count, DataType dtype,
                                              ReduceOp op = ReduceOp::kSum, const CallOptions& options = {}) = 0;
  /// Copies `bytes` from rank `root` to all.
  virtual std::shared_ptr<Work> Broadcast(void* buffer, size_t bytes, int root,
                                          const CallOptions& options = {}) = 0;
  /// Rank r's `bytes` land at out + r * bytes on all ranks.
  virtual std::shared_ptr<Work> AllGather(const void* in, void* out, size_t bytes,
                                          const CallOptions& options = {}) = 0;
  /// AllGather whose result only `root` gets; elsewhere `out` may be null and is not touched.
  virtual std::shared_ptr<Work> Gather(const void* in, void* out, size_t bytes, int root,
                                       const CallOptions& options = {}) = 0;
  /// Rank r gets the r-th `bytes` of the world_size * bytes at `in` on rank `root`; elsewhere `in` may be null.
  virtual std::shared_ptr<Work> Scatter(const void* in, void* out, size_t bytes, int root,
                                        const CallOptions& options = {}) = 0;
  /// Done when every rank has called it.
  virtual std::shared_ptr<Work> Barrier(const CallOptions& options = {}) = 0;
  /// The sum over all ranks goes to the job's server (server.h), the bits that AllReduce gives; nothing comes back.
  /// Done when the server has all of it. Only in a job with a server, as Pull,
  /// and in a traffic class of their own: the first call in a class decides whether it carries these or the others.
  virtual std::shared_ptr<Work> Push(const void* in, size_t count, DataType dtype, const CallOptions& options = {}) = 0;
  /// Copies `bytes` from the job's server to all ranks, who ask for the same.
  virtual std::shared_ptr<Work> Pull(void* out, size_t bytes, const CallOptions& options = {}) = 0;

  virtual CommStats Stats() const = 0;

  /// After a collective failed because the job did (kRankLost and its kin): goes on with the ranks that are left. Blocks until all of
  /// them have called it, or those that have not count as lost (ShrinkOptions::wait). Gives the same job under a new epoch,
  /// with ranks numbered anew in the order of the old ones, the same answer on all of them; who comes later is refused (kConflict).
  /// What was under way stays failed on this rank; elsewhere the same collective may have returned its sum, so ranks
  /// should compare how far they are first (an AllReduce with kMin). This communicator can only be closed afterwards; after
  /// an error Shrink may be called again. kInvalidArgument: the job has not failed. Not for jobs with a server (kUnsupported).
  virtual Result<std::unique_ptr<Communicator>> Shrink(const ShrinkOptions& options = {}) = 0;
  virtual const ShrinkReport& shrunk() const = 0;
};

}  // namespace mlnet
