// SPDX-License-Identifier: Apache-2.0
// A whole job in one process: engines of all ranks, the real XDP bytecode on every host, virtual time.
// Nothing is stubbed between a call and its result but the wire.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine.h"
#include "harness/bpf_host.h"
#include "ring/ring_message.h"
#include "sim/cluster_options.h"
#include "sim/network.h"
#include "sim/observer.h"
#include "sim/tree_shape.h"
#include "sim/wiring.h"
#include "transport/inbox.h"

namespace mlnet::sim {

/// From MLNET_SEED, else `fallback`; printed, so that a failure can be replayed.
uint64_t Seed(uint64_t fallback);

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();

  int ranks() const { return options_.ranks; }
  /// With the aggregators' own.
  int hosts() const { return static_cast<int>(hosts_.size()); }
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
  /// Frames that a program was run on, copies that leave by a devmap included.
  uint64_t packet_events() const { return packet_events_; }
  Network& network() { return network_; }
  uint64_t now_ns() const { return now_ns_; }
  const std::vector<std::string>& descriptions() const { return descriptions_; }
  /// Watches this cluster's network from here on.
  Observer& Observe();
  /// A frame that nobody here has sent reaches a host at that time.
  void Inject(uint64_t at_ns, int host, test::Bytes frame);
  /// A rank that crashed: it neither sends nor receives any more.
  void Kill(int rank);
  /// All aggregators are lost: within `spread_ns` each host is barred, its ranks stop, and the ring takes over.
  void LoseAggregators(uint64_t spread_ns);

 private:
  class Rank;
  struct Call {
    uint64_t at_ns;
    std::function<void()> run;
  };

  void ChooseJob();
  void SetUpHosts();
  void SetUpRank(int rank, worker::EngineConfig config);
  void SetUpServer(worker::EngineConfig config);
  worker::Inbox& InboxOf(int rank) const;
  void AddRank(int rank, const worker::EngineConfig& config);
  void SetUpSlots();
  test::JobSpec JobOf(int host, int tree) const;
  worker::TreeConfig TreeOf(int tree) const;
  std::vector<std::vector<int>> RanksBehind(int node, int tree) const;
  int RootOf(int tree) const { return shape_.RootOf(tree); }
  std::vector<uint8_t> Pools() const;
  uint8_t Log2Slots(uint8_t pool) const;
  uint8_t Log2Most(uint8_t pool) const;
  int HostOf(int rank) const { return rank == server() ? RootOf(0) : rank % num_hosts_; }
  void SignFor(int rank, worker::EngineConfig& config) const;
  void SendUp(int rank, int tree, std::span<const std::byte> packet);
  void Deliver(const Arrival& arrival);
  void Forward(int from, std::span<const uint8_t> frame);
  void ForwardCopies(int from, const test::Outcome& run);
  void ExpectOneVerdictEach();
  void RunRank(Rank& rank);
  void BeginRing(Rank& rank);
  void SendRing(int from, worker::RingKind kind, uint16_t hops, std::span<const std::byte> body);
  void DeliverRing();
  bool Step();
  bool AreAllDone() const;
  void FailAll(const Error& error);

  ClusterOptions options_;
  int num_hosts_;
  TreeShape shape_;
  uint64_t now_ns_ = 1'000'000;
  Network network_;
  Wiring wiring_;
  struct Host {
    test::BpfHost* bpf;
    std::vector<Rank*> ranks;
    std::vector<int> copies;  // of a result, by tree
    mlnet_stats before{};  // of earlier epochs of the job
    uint64_t verdicts_before = 0, packets = 0;
    bool is_barred = false;  // its kernel does not know the job any more
  };
  struct RingMessage {
    int to;
    worker::RingKind kind;
    uint16_t hops;
    std::vector<std::byte> body;
  };
  std::vector<Host> hosts_;  // worker hosts, then aggregators without ranks
  std::vector<std::unique_ptr<Rank>> ranks_;  // the server behind them
  std::unique_ptr<Observer> observer_;
  std::vector<Call> calls_;
  std::vector<std::shared_ptr<Work>> works_;
  std::vector<std::string> descriptions_;
  std::multimap<uint64_t, RingMessage> ring_messages_;  // by time of arrival
  std::map<int, uint64_t> ring_last_ns_;                // newest of these, by receiver: TCP keeps the order
  std::mt19937_64 ring_random_;
  uint64_t packet_events_ = 0;
  uint16_t job_, epoch_;
  std::shared_ptr<const mlnet_key> key_;  // of packets that carry a tag
};

}  // namespace mlnet::sim
