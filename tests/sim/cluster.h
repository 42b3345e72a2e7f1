// SPDX-License-Identifier: Apache-2.0
// A whole job in one process: engines of all ranks, the real XDP bytecode on every host, virtual time.
// Nothing is stubbed between a call and its result but the wire.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine.h"
#include "harness/bpf_host.h"
#include "sim/network.h"
#include "sim/tree_shape.h"
#include "transport/inbox.h"

namespace mlnet::sim {

/// From MLNET_SEED, else `fallback`; printed, so that a failure can be replayed.
uint64_t Seed(uint64_t fallback);

struct ClusterOptions {
  int ranks = 2;
  int hosts = 0;  // worker hosts; 0: one per rank. Rank r runs on host r mod hosts
  int trees = 1;  // each with a root of its own
  bool workers_sum = false;  // roots are worker hosts, in turn; else hosts without ranks
  bool combines = false;     // hosts of several ranks are inner nodes
  bool has_server = false;   // on the host of each tree's root; one tree
  int racks = 0;             // each with a node of its own between the hosts and the root
  uint32_t forward_ns = 1;   // of inner nodes; by the program's clock, which is not the simulator's
  bool is_multicast = true;
  uint8_t log2_slots = 5;
  std::vector<uint8_t> classes{0};
  uint64_t first_seq = 0;  // of every class and stream
  uint8_t fixup_log2_slots = 3;
  size_t small_bytes = 0;  // 0: every float sum goes through the slot engine
  uint32_t window_first = 32;
  uint64_t timeout_ns = 5'000'000'000;
  Faults faults = {};
  uint64_t seed = 1;
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();

  int ranks() const { return options_.ranks; }
  /// What Submit and engine take for the job's server.
  int server() const { return options_.ranks; }
  /// Runs `call` on the virtual clock; by it, ranks may call at different times.
  void At(uint64_t at_ns, std::function<void()> call);
  std::shared_ptr<Work> Submit(int rank, const worker::CollectiveSpec& spec);

  /// Runs until every work given out by Submit is done; false when nothing is left that could happen.
  bool RunUntilDone();
  /// Runs for so long, whatever is outstanding.
  void RunFor(uint64_t duration_ns);

  worker::Engine& engine(int rank);
  /// What the rank has told since Engine::SetTracing.
  const std::vector<worker::TraceRecord>& Traced(int rank) const;
  CommStats Stats(int rank) { return engine(rank).Stats(); }
  mlnet_stats AggregatorStats();
  mlnet_stats RootStats(int tree) { return HostStats(RootOf(tree)); }
  mlnet_stats HostStats(int host);
  const Traffic& traffic() const { return network_.traffic(); }
  Network& network() { return network_; }
  uint64_t now_ns() const { return now_ns_; }
  const std::vector<std::string>& descriptions() const { return descriptions_; }
  /// A rank that crashed: it neither sends nor receives any more.
  void Kill(int rank);

 private:
  class Rank;
  struct Call {
    uint64_t at_ns;
    std::function<void()> run;
  };

  void SetUpHosts();
  void SetUpRank(int rank, worker::EngineConfig config);
  void SetUpServer(worker::EngineConfig config);
  void SetUpSlots();
  test::JobSpec JobOf(int host, int tree) const;
  worker::TreeConfig TreeOf(int tree) const;
  std::vector<std::vector<int>> RanksBehind(int node, int tree) const;
  int RootOf(int tree) const { return shape_.RootOf(tree); }
  static test::Address IpOfHost(int host);
  std::vector<uint8_t> Pools() const;
  uint8_t Log2Slots(uint8_t pool) const;
  int HostOf(int rank) const { return rank == server() ? RootOf(0) : rank % num_hosts_; }
  void SendUp(int rank, int tree, std::span<const std::byte> packet);
  void Deliver(Arrival arrival);
  void Forward(int from, const test::Bytes& frame);
  void ForwardCopies(int from, const test::RunResult& run);
  void RunRanks(int host);
  void RunRank(Rank& rank);
  bool Step();
  bool AreAllDone() const;
  void FailAll(const Error& error);

  ClusterOptions options_;
  int num_hosts_;
  TreeShape shape_;
  uint64_t now_ns_ = 1'000'000;
  Network network_;
  std::vector<test::BpfHost*> hosts_;  // worker hosts, then aggregators without ranks
  std::vector<std::unique_ptr<Rank>> ranks_;  // the server behind them
  std::vector<Call> calls_;
  std::vector<std::shared_ptr<Work>> works_;
  std::vector<std::string> descriptions_;
  uint16_t job_;
};

}  // namespace mlnet::sim
