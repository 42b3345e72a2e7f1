// SPDX-License-Identifier: Apache-2.0
#include "sim/cluster.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace mlnet::sim {
namespace {

constexpr const char* kLocalAggregator = "169.254.28.12";  // of each host, behind its veth
constexpr uint64_t kNextTurnNs = 1'000;

test::Mac MacOf(int host) { return {0x02, 0, 0, 0, 0, static_cast<uint8_t>(host + 1)}; }
test::Address LocalIp() { return test::Ip(kLocalAggregator); }
test::Address GroupIp() { return test::Ip("239.77.1.7"); }

// Loading takes a while and hosts keep jobs apart, so all clusters of a process share them.
test::BpfHost* HostNumber(size_t index) {
  static std::vector<std::unique_ptr<test::BpfHost>> hosts;
  while (hosts.size() <= index) hosts.push_back(test::BpfHost::Create());
  return hosts[index].get();
}

// The fan-out counts copies per CPU, as the kernel runs them: one CPU for all of them.
void StayOnOneCpu() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &set);
  ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
}

}  // namespace

uint64_t Seed(uint64_t fallback) {
  const char* text = std::getenv("MLNET_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 0) : fallback;
  std::printf("MLNET_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

// One rank: its engine, and the engine's two ways out.
class Cluster::Rank final : public worker::Transport, public worker::ControlSink {
 public:
  Rank(Cluster& cluster, int number, worker::Inbox inbox, const worker::EngineConfig& config)
      : cluster_(cluster), number_(number), inbox_(std::move(inbox)), engine(config, *this, *this) {}

  Result<void> Send(size_t flow, std::span<const std::byte> packets, size_t packet_bytes) override {
    for (size_t at = 0; at < packets.size(); at += packet_bytes) {
      cluster_.SendUp(number_, static_cast<int>(flow / MLNET_CLASSES_MAX), packets.subspan(at, std::min(packet_bytes, packets.size() - at)));
    }
    return {};
  }
  void SetDscp(int) override {}
  const mlnet_cell* Cells() const override { return inbox_.cells(); }
  bool NextNotice(mlnet_notice& notice) override { return inbox_.NextNotice(notice); }

  void Describe(uint64_t, uint32_t, const std::string& text) override {
    cluster_.descriptions_.push_back("rank " + std::to_string(number_) + ": " + text);
    error_ = Error{ErrorCode::kMismatch, cluster_.descriptions_.back(), {}};
  }
  void Abort(const Error& error) override { error_ = error; }
  void Report(const CommStats&) override {}
  void Traced(const std::vector<worker::TraceRecord>& records, bool) override { traced_.insert(traced_.end(), records.begin(), records.end()); }

  Cluster& cluster_;
  int number_;
  worker::Inbox inbox_;
  std::vector<worker::TraceRecord> traced_;
  std::optional<Error> error_;  // to be told to all ranks, as mlnetd does
  uint64_t next_ns = 0;
  bool is_dead = false;
  worker::Engine engine;
};

Cluster::Cluster(const ClusterOptions& options)
    : options_(options),
      num_hosts_(options.hosts > 0 ? options.hosts : options.ranks),
      shape_({options.ranks, num_hosts_, options.racks, options.workers_sum, options.combines}),
      network_(options.faults, options.seed) {
  static uint16_t last_job = 0;
  job_ = ++last_job;
  StayOnOneCpu();
  SetUpHosts();
  SetUpSlots();
  worker::EngineConfig config;
  config.job = job_;
  config.world_size = options_.ranks;
  config.timeout_ns = options_.timeout_ns;
  config.window_first = options_.window_first;
  config.small_bytes = options_.small_bytes;
  if (test::IsIpv6Run()) config.blocks = MLNET_BLOCKS_MAX - 1;  // at the same MTU
  config.trees.clear();
  config.has_server = options_.has_server;
  for (int t = 0; t < options_.trees; ++t) config.trees.push_back(TreeOf(t));
  for (int r = 0; r < options_.ranks; ++r) SetUpRank(r, config);
  if (options_.has_server) SetUpServer(config);
}

void Cluster::SetUpRank(int r, worker::EngineConfig config) {
  test::BpfHost& host = *hosts_[static_cast<size_t>(HostOf(r))];
  const auto local = static_cast<uint32_t>(r / num_hosts_);
  auto inbox = worker::Inbox::Open(host.InboxFd(job_), host.WakeFd(job_), host.RingFd(job_, local), local);
  EXPECT_TRUE(inbox.has_value()) << inbox.error().ToString();
  config.rank = r;
  for (int t = 0; t < options_.trees; ++t) {
    worker::TreeConfig& tree = config.trees[static_cast<size_t>(t)];
    const int node = shape_.NodeOf(r, t), above = shape_.ParentOf(node, t);
    tree.child = static_cast<uint8_t>(shape_.ChildIndexOf(r, t));
    tree.children = RanksBehind(node, t);
    tree.above = above < 0 ? std::vector<std::vector<int>>{} : RanksBehind(above, t);
  }
  ranks_.push_back(std::make_unique<Rank>(*this, r, std::move(*inbox), config));
}

void Cluster::SetUpServer(worker::EngineConfig config) {
  test::BpfHost& host = *hosts_[static_cast<size_t>(RootOf(0))];
  auto inbox = worker::Inbox::Open(host.ServerInboxFd(job_), host.ServerWakeFd(job_), host.ServerRingFd(job_), 0);
  EXPECT_TRUE(inbox.has_value()) << inbox.error().ToString();
  config.rank = server();
  config.is_server = true;
  ranks_.push_back(std::make_unique<Rank>(*this, server(), std::move(*inbox), config));
}

Cluster::~Cluster() = default;

const std::vector<worker::TraceRecord>& Cluster::Traced(int rank) const { return ranks_[static_cast<size_t>(rank)]->traced_; }

test::Address Cluster::IpOfHost(int host) { return test::Ip("192.0.2." + std::to_string(host + 1)); }

worker::TreeConfig Cluster::TreeOf(int tree) const {
  worker::TreeConfig config;
  config.tree = static_cast<uint8_t>(tree);
  config.aggregator = "192.0.2." + std::to_string(RootOf(tree) + 1) + ":28012";
  uint32_t cells = 0;
  for (const uint8_t pool : Pools()) cells += 2U << Log2Slots(pool);
  uint32_t cell_base = cells * static_cast<uint32_t>(tree);
  for (const uint8_t pool : Pools()) {
    const uint8_t log2_slots = Log2Slots(pool);
    (MLNET_STREAM(pool) == 0 ? config.pools : config.fixups)[MLNET_CLASS(pool)] = {true, log2_slots, cell_base,
                                                                                   options_.first_seq};
    cell_base += 2U << log2_slots;
  }
  return config;
}

std::vector<std::vector<int>> Cluster::RanksBehind(int node, int tree) const {
  std::vector<std::vector<int>> ranks;
  for (const Child& child : shape_.ChildrenOf(node, tree)) {
    ranks.push_back(child.rank >= 0 ? std::vector<int>{child.rank} : shape_.RanksOf(child.host));
  }
  return ranks;
}

test::JobSpec Cluster::JobOf(int host, int tree) const {
  test::JobSpec spec;
  const int root = RootOf(tree);
  const bool is_node = shape_.IsNode(host, tree);
  const int node = is_node ? host : shape_.ParentOf(host, tree);  // that the ranks here send to
  spec.job = job_;
  spec.tree = static_cast<uint8_t>(tree);
  spec.num_trees = static_cast<uint8_t>(options_.trees);
  spec.aggregator = IpOfHost(node);
  spec.root = IpOfHost(root);
  spec.group = GroupIp();
  for (const Child& child : shape_.ChildrenOf(node, tree)) spec.child_addr.push_back(IpOfHost(child.host));
  if (host < num_hosts_) spec.flags = MLNET_NODE_DELIVER;
  else spec.flags = 0;
  if (is_node) spec.flags |= MLNET_NODE_AGGREGATE;
  if (host == root && options_.is_multicast) spec.flags |= MLNET_NODE_MULTICAST;
  if (is_node && host < num_hosts_) spec.local = LocalIp();
  if (options_.has_server && host == root) {
    spec.flags |= MLNET_NODE_SERVER;
    spec.local = LocalIp();
    spec.forward_ns = options_.forward_ns;
  }
  if (is_node && host != root) {
    const int parent = shape_.ParentOf(host, tree);
    spec.flags |= MLNET_NODE_INNER;
    spec.up = IpOfHost(parent);
    spec.up_mac = MacOf(parent);
    spec.up_child = static_cast<uint8_t>(shape_.NodeIndexOf(host, tree));
    spec.forward_ns = options_.forward_ns;
  }
  for (const int rank : shape_.RanksOf(host)) {
    spec.local_children.push_back(static_cast<uint8_t>(shape_.ChildIndexOf(rank, tree)));
  }
  for (const uint8_t pool : Pools()) {
    spec.open_pools.push_back(pool);
    spec.pool_log2_slots.push_back(Log2Slots(pool));
  }
  return spec;
}

void Cluster::SetUpHosts() {
  const int num_all = options_.workers_sum ? num_hosts_ : num_hosts_ + options_.trees;
  for (int h = 0; h < num_all; ++h) {
    hosts_.push_back(HostNumber(static_cast<size_t>(h)));
    for (int t = 0; t < options_.trees; ++t) {
      if (h < num_hosts_ || h == RootOf(t)) hosts_.back()->SetJob(JobOf(h, t));
    }
  }
}

// As class_stream: the classes, then their fix-up streams.
std::vector<uint8_t> Cluster::Pools() const {
  std::vector<uint8_t> pools = options_.classes;
  for (const uint8_t c : options_.classes) pools.push_back(MLNET_CLASS_STREAM(c, 1));
  return pools;
}

uint8_t Cluster::Log2Slots(uint8_t pool) const {
  return MLNET_STREAM(pool) == 0 ? options_.log2_slots : options_.fixup_log2_slots;
}

// The state that a job which has run since seq 0 would have left just before first_seq.
void Cluster::SetUpSlots() {
  if (options_.first_seq == 0) return;
  EXPECT_FALSE(options_.combines || options_.racks > 0) << "slots of inner nodes are not set up";
  const uint64_t members = options_.ranks == 64 ? ~0ULL : (1ULL << options_.ranks) - 1;
  for (const uint8_t pool : Pools()) {
    const uint64_t slots = 1ULL << Log2Slots(pool);
    for (uint64_t next = options_.first_seq; next < options_.first_seq + slots; ++next) {
      mlnet_slot slot{};
      for (uint64_t back = slots; back <= 2 * slots; back += slots) {
        mlnet_set& set = slot.set[((next - back) / slots) % 2];
        set.seq = next - back;
        set.contributed = set.proved = members;
        set.epoch = 1;
        set.state = MLNET_SET_COMPLETE;
      }
      for (int t = 0; t < options_.trees; ++t) {
        hosts_[static_cast<size_t>(RootOf(t))]->SetSlot(job_, pool, static_cast<uint32_t>(next % slots), slot,
                                                        static_cast<uint8_t>(t));
      }
    }
  }
}

void Cluster::At(uint64_t at_ns, std::function<void()> call) {
  calls_.push_back({now_ns_ + at_ns, std::move(call)});
  std::stable_sort(calls_.begin(), calls_.end(),
                   [](const Call& a, const Call& b) { return a.at_ns < b.at_ns; });
}

std::shared_ptr<Work> Cluster::Submit(int rank, const worker::CollectiveSpec& spec) {
  auto work = engine(rank).Submit(spec);
  works_.push_back(work);
  ranks_[static_cast<size_t>(rank)]->next_ns = now_ns_;
  return work;
}

worker::Engine& Cluster::engine(int rank) { return ranks_[static_cast<size_t>(rank)]->engine; }
mlnet_stats Cluster::AggregatorStats() { return RootStats(0); }
mlnet_stats Cluster::HostStats(int host) { return hosts_[static_cast<size_t>(host)]->Stats(job_); }
void Cluster::Kill(int rank) { ranks_[static_cast<size_t>(rank)]->is_dead = true; }

void Cluster::SendUp(int rank, int tree, std::span<const std::byte> packet) {
  const int from = HostOf(rank), to = rank == server() ? from : shape_.NodeOf(rank, tree);
  test::Frame addresses;
  addresses.saddr = IpOfHost(from);
  addresses.daddr = from == to ? LocalIp() : IpOfHost(to);
  addresses.src_mac = MacOf(from);
  addresses.dst_mac = MacOf(to);
  addresses.words.resize((packet.size() - sizeof(mlnet_hdr) - sizeof(mlnet_trailer)) / 8);
  test::Bytes frame = addresses.Build();  // the right length; then the packet as the engine built it
  std::memcpy(frame.data() + frame.size() - packet.size(), packet.data(), packet.size());
  network_.Send(now_ns_, from, to, std::move(frame));
}

void Cluster::Deliver(Arrival arrival) {
  if (arrival.frame.size() < 14) return;
  test::BpfHost& host = *hosts_[static_cast<size_t>(arrival.host)];
  const test::RunResult run = host.Run(arrival.frame);
  // A redirect without metadata goes out as it is.
  if (run.action == XDP_TX || (run.action == XDP_REDIRECT && run.meta.empty())) Forward(arrival.host, run.frame);
  if (run.action == XDP_REDIRECT && !run.meta.empty()) ForwardCopies(arrival.host, run);
  RunRanks(arrival.host);
}

// The switch: by destination address; a group goes to every worker host but the one that sends. A host's answers
// to its own ranks go through its veth, and so through its program again.
void Cluster::Forward(int from, const test::Bytes& frame) {
  const test::Address daddr = test::Destination(frame);
  for (int h = 0; h < static_cast<int>(hosts_.size()); ++h) {
    const bool is_in_group = daddr == GroupIp() && h != from && h < num_hosts_;
    if (is_in_group || daddr == IpOfHost(h)) network_.Send(now_ns_, from, h, frame);
  }
}

void Cluster::ForwardCopies(int from, const test::RunResult& run) {
  mlnet_fan_meta meta;
  std::memcpy(&meta, run.meta.data(), sizeof(meta));
  for (int copy = 0; copy < shape_.CopiesOf(from, meta.tree); ++copy) {
    const test::RunResult sent = hosts_[static_cast<size_t>(from)]->RunEgress(run.meta, run.frame);
    EXPECT_EQ(sent.action, XDP_PASS);
    Forward(from, sent.frame);
  }
}

void Cluster::RunRanks(int host) {
  for (const auto& rank : ranks_) {
    if (HostOf(rank->number_) == host) RunRank(*rank);
  }
}

void Cluster::RunRank(Rank& rank) {
  if (rank.is_dead) {
    rank.next_ns = worker::kNever;
    return;
  }
  const worker::Turn turn = rank.engine.RunOnce(now_ns_);
  rank.next_ns = turn.has_progress ? now_ns_ + kNextTurnNs : std::max(turn.next_ns, now_ns_ + kNextTurnNs);
  if (rank.error_) FailAll(*rank.error_);
}

void Cluster::FailAll(const Error& error) {
  for (auto& rank : ranks_) rank->engine.Fail(error);
}

bool Cluster::Step() {
  uint64_t next_ns = network_.IsEmpty() ? worker::kNever : network_.NextNs();
  if (!calls_.empty()) next_ns = std::min(next_ns, calls_.front().at_ns);
  for (const auto& rank : ranks_) next_ns = std::min(next_ns, rank->next_ns);
  if (next_ns == worker::kNever) return false;
  now_ns_ = std::max(now_ns_, next_ns);
  while (!calls_.empty() && calls_.front().at_ns <= now_ns_) {
    const auto call = std::move(calls_.front().run);
    calls_.erase(calls_.begin());
    call();
  }
  while (!network_.IsEmpty() && network_.NextNs() <= now_ns_) Deliver(network_.Take());
  for (auto& rank : ranks_) {
    if (rank->next_ns <= now_ns_) RunRank(*rank);
  }
  return true;
}

bool Cluster::AreAllDone() const {
  return calls_.empty() &&
         std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->IsDone(); });
}

bool Cluster::RunUntilDone() {
  while (!AreAllDone()) {
    if (!Step()) return false;
  }
  works_.clear();
  return true;
}

void Cluster::RunFor(uint64_t duration_ns) {
  const uint64_t end_ns = now_ns_ + duration_ns;
  while (now_ns_ < end_ns && Step()) {
  }
}

}  // namespace mlnet::sim
