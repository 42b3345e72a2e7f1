// SPDX-License-Identifier: Apache-2.0
#include "sim/cluster.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "ring/ring_member.h"

namespace mlnet::sim {
namespace {

constexpr uint64_t kNextTurnNs = 1'000;
constexpr uint64_t kRingDelayNs = 20'000;

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
class Cluster::Rank final : public worker::Transport, public worker::ControlSink, public worker::RingSink {
 public:
  Rank(Cluster& cluster, int number, worker::Inbox& inbox, const worker::EngineConfig& config)
      : cluster_(cluster), number_(number), inbox_(inbox), member(config, *this), engine(config, member, *this) {}

  Result<void> Send(size_t flow, std::span<const std::byte> packets, size_t packet_bytes) override {
    for (size_t at = 0; at < packets.size(); at += packet_bytes) {
      cluster_.SendUp(number_, static_cast<int>(flow / MLNET_CLASSES_MAX), packets.subspan(at, std::min(packet_bytes, packets.size() - at)));
    }
    return {};
  }
  void Send(worker::RingKind kind, uint16_t hops, std::span<const std::byte> body) override { cluster_.SendRing(number_, kind, hops, body); }
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
  worker::Inbox& inbox_;
  std::vector<worker::TraceRecord> traced_;
  std::optional<Error> error_;  // to be told to all ranks, as mlnetd does
  std::vector<int> nodes;  // that it sends to, by tree
  uint64_t next_ns = 0;
  uint64_t looked_ns = 0;
  bool is_dead = false;
  bool has_begun_ring = false;
  std::vector<RingMessage> early;  // came in before it had
  worker::RingMember member;
  worker::Engine engine;
};

Cluster::Cluster(const ClusterOptions& options)
    : options_(options),
      num_hosts_(options.hosts > 0 ? options.hosts : options.ranks),
      shape_({options.ranks, num_hosts_, options.racks, options.workers_sum, options.combines}),
      network_(options.faults, options.seed),
      wiring_(options.workers_sum ? num_hosts_ : num_hosts_ + options.trees),
      ring_random_(options.seed) {
  ChooseJob();
  StayOnOneCpu();
  SetUpHosts();
  SetUpSlots();
  worker::EngineConfig config;
  config.job = job_;
  config.epoch = epoch_;
  config.world_size = options_.ranks;
  config.timeout_ns = options_.timeout_ns;
  config.window_first = options_.window_first;
  config.small_bytes = options_.small_bytes;
  if (test::IsIpv6Run() || options_.has_mac) config.blocks = MLNET_BLOCKS_MTU1500 - 1;  // at the same MTU
  if (options_.blocks != 0) config.blocks = options_.blocks;
  config.trees.clear();
  config.has_server = options_.has_server;
  for (int t = 0; t < options_.trees; ++t) config.trees.push_back(TreeOf(t));
  for (int r = 0; r < options_.ranks; ++r) SetUpRank(r, config);
  if (options_.has_server) SetUpServer(config);
}

void Cluster::SetUpRank(int r, worker::EngineConfig config) {
  config.rank = r;
  for (int t = 0; t < options_.trees; ++t) {
    worker::TreeConfig& tree = config.trees[static_cast<size_t>(t)];
    const int node = shape_.NodeOf(r, t), above = shape_.ParentOf(node, t);
    tree.child = static_cast<uint8_t>(shape_.ChildIndexOf(r, t));
    tree.children = RanksBehind(node, t);
    tree.above = above < 0 ? std::vector<std::vector<int>>{} : RanksBehind(above, t);
  }
  SignFor(r, config);
  AddRank(r, config);
}

// As the answer to join has it: from the rank's own address to its node's, or to the node on its host.
void Cluster::SignFor(int rank, worker::EngineConfig& config) const {
  const int host = HostOf(rank);
  if (key_) config.ring_key = {1, 2};
  for (int t = 0; key_ && t < options_.trees; ++t) {
    const int node = rank == server() ? host : shape_.NodeOf(rank, t);
    const test::Address to = node == host ? Wiring::LocalIp() : Wiring::IpOf(node);
    config.trees[static_cast<size_t>(t)].signer = std::make_shared<const wire::Signer>(key_, Wiring::IpOf(host).bytes, to.bytes);
  }
}

// Clusters of a kind come back to the same memory.
worker::Inbox& Cluster::InboxOf(int rank) const {
  static std::map<std::tuple<const test::BpfHost*, uint16_t, int>, worker::Inbox> inboxes;
  test::BpfHost& host = *hosts_[static_cast<size_t>(HostOf(rank))].bpf;
  const bool is_server = rank == server();
  const int local = is_server ? -1 : rank / num_hosts_;
  const auto found = inboxes.find({&host, job_, local});
  if (found != inboxes.end()) return found->second;
  auto inbox = is_server ? worker::Inbox::Open(host.ServerInboxFd(job_), host.ServerWakeFd(job_), host.ServerRingFd(job_), 0)
                         : worker::Inbox::Open(host.InboxFd(job_), host.WakeFd(job_), host.RingFd(job_, static_cast<uint32_t>(local)),
                                               static_cast<unsigned>(local));
  EXPECT_TRUE(inbox.has_value()) << inbox.error().ToString();
  return inboxes.emplace(std::tuple(&host, job_, local), std::move(*inbox)).first->second;
}

void Cluster::AddRank(int rank, const worker::EngineConfig& config) {
  ranks_.push_back(std::make_unique<Rank>(*this, rank, InboxOf(rank), config));
  const int host = HostOf(rank);
  hosts_[static_cast<size_t>(host)].ranks.push_back(ranks_.back().get());
  for (int t = 0; t < options_.trees; ++t) ranks_.back()->nodes.push_back(rank == server() ? host : shape_.NodeOf(rank, t));
}

void Cluster::SetUpServer(worker::EngineConfig config) {
  config.rank = server();
  config.is_server = true;
  SignFor(server(), config);
  AddRank(server(), config);
}

Cluster::~Cluster() { ExpectOneVerdictEach(); }

const std::vector<worker::TraceRecord>& Cluster::Traced(int rank) const { return ranks_[static_cast<size_t>(rank)]->traced_; }

void Cluster::ExpectOneVerdictEach() {
  for (const Host& host : hosts_) {
    EXPECT_EQ(host.bpf->Verdicts() - host.verdicts_before, host.packets) << "a packet ends in exactly one verdict";
  }
}

void Cluster::At(uint64_t at_ns, std::function<void()> call) {
  calls_.push_back({now_ns_ + at_ns, std::move(call)});
  std::stable_sort(calls_.begin(), calls_.end(),
                   [](const Call& a, const Call& b) { return a.at_ns < b.at_ns; });
}

Observer& Cluster::Observe() {
  options_.hosts = num_hosts_;
  observer_ = std::make_unique<Observer>(options_, shape_, job_, epoch_);
  return *observer_;
}

void Cluster::Inject(uint64_t at_ns, int host, test::Bytes frame) {
  At(at_ns, [this, host, frame = std::move(frame)] { Deliver({host, frame}); });
}

std::shared_ptr<Work> Cluster::Submit(int rank, const worker::CollectiveSpec& spec) {
  auto work = engine(rank).Submit(spec);
  works_.push_back(work);
  ranks_[static_cast<size_t>(rank)]->next_ns = now_ns_;
  return work;
}

worker::Engine& Cluster::engine(int rank) { return ranks_[static_cast<size_t>(rank)]->engine; }
mlnet_stats Cluster::AggregatorStats() { return RootStats(0); }
void Cluster::Kill(int rank) { ranks_[static_cast<size_t>(rank)]->is_dead = true; }

void Cluster::SendUp(int rank, int tree, std::span<const std::byte> packet) {
  if (observer_) observer_->OnSent(rank, packet);
  const int from = HostOf(rank), to = ranks_[static_cast<size_t>(rank)]->nodes[static_cast<size_t>(tree)];
  network_.Send(now_ns_, from, to, wiring_.FrameOf(from, to, packet));
}

void Cluster::Deliver(const Arrival& arrival) {
  if (arrival.frame.size() < 14) return;
  Host& host = hosts_[static_cast<size_t>(arrival.host)];
  if (host.is_barred) return;
  if (observer_) observer_->OnArrived(arrival.host, arrival.frame);
  const test::Outcome run = host.bpf->RunQuick(arrival.frame);
  ++host.packets;
  ++packet_events_;
  // A redirect without metadata goes out as it is.
  if (run.action == XDP_TX || (run.action == XDP_REDIRECT && run.meta.empty())) Forward(arrival.host, run.frame);
  if (run.action == XDP_REDIRECT && !run.meta.empty()) ForwardCopies(arrival.host, run);
  for (Rank* rank : host.ranks) rank->next_ns = std::min(rank->next_ns, std::max(now_ns_, rank->looked_ns + kNextTurnNs));
}

// The switch: by destination address; a group goes to every worker host but the one that sends. A host's answers
// to its own ranks go through its veth, and so through its program again.
void Cluster::Forward(int from, std::span<const uint8_t> frame) {
  if (observer_) observer_->OnEmitted(from, frame);
  const int to = wiring_.ReceiverOf(frame);
  if (to >= 0) network_.Send(now_ns_, from, to, frame);
  if (to != Wiring::kGroup) return;
  for (int h = 0; h < num_hosts_; ++h) {
    if (h != from) network_.Send(now_ns_, from, h, frame);
  }
}

void Cluster::ForwardCopies(int from, const test::Outcome& run) {
  mlnet_fan_meta meta;
  std::memcpy(&meta, run.meta.data(), sizeof(meta));
  const std::span<const uint8_t> whole(run.meta.data(), run.meta.size() + run.frame.size());
  Host& host = hosts_[static_cast<size_t>(from)];
  for (int copy = 0; copy < host.copies[meta.tree]; ++copy) {
    const test::Outcome sent = host.bpf->RunEgressQuick(whole, run.meta.size());
    ++packet_events_;
    EXPECT_EQ(sent.action, XDP_PASS);
    Forward(from, sent.frame);
  }
}

void Cluster::RunRank(Rank& rank) {
  if (rank.is_dead) {
    rank.next_ns = worker::kNever;
    return;
  }
  rank.looked_ns = now_ns_;
  const worker::Turn turn = rank.engine.RunOnce(now_ns_);
  rank.next_ns = turn.has_progress ? now_ns_ + kNextTurnNs : std::max(turn.next_ns, now_ns_ + kNextTurnNs);
  if (rank.error_) FailAll(*rank.error_);
}

void Cluster::LoseAggregators(uint64_t spread_ns) {
  for (size_t h = 0; h < hosts_.size(); ++h) {
    At(ring_random_() % (spread_ns + 1), [this, h] {
      hosts_[h].is_barred = true;
      for (Rank* rank : hosts_[h].ranks) BeginRing(*rank);
    });
  }
}

void Cluster::BeginRing(Rank& rank) {
  rank.has_begun_ring = true;
  rank.next_ns = now_ns_;
  rank.member.Begin(rank.engine.Suspend(now_ns_), rank);
  for (const RingMessage& m : rank.early) {
    const auto ok = rank.member.OnMessage(m.kind, m.hops, m.body);
    EXPECT_TRUE(ok.has_value()) << ok.error().ToString();
  }
  rank.early.clear();
}

void Cluster::SendRing(int from, worker::RingKind kind, uint16_t hops, std::span<const std::byte> body) {
  const int to = (from + 1) % options_.ranks;
  uint64_t& last_ns = ring_last_ns_[to];
  last_ns = std::max(last_ns, now_ns_ + kRingDelayNs + ring_random_() % kRingDelayNs);
  ring_messages_.emplace(last_ns, RingMessage{to, kind, hops, {body.begin(), body.end()}});
}

void Cluster::DeliverRing() {
  while (!ring_messages_.empty() && ring_messages_.begin()->first <= now_ns_) {
    const RingMessage message = std::move(ring_messages_.begin()->second);
    ring_messages_.erase(ring_messages_.begin());
    Rank& rank = *ranks_[static_cast<size_t>(message.to)];
    if (rank.is_dead) continue;
    if (!rank.has_begun_ring) {
      rank.early.push_back(message);
      continue;
    }
    const auto ok = rank.member.OnMessage(message.kind, message.hops, message.body);
    EXPECT_TRUE(ok.has_value()) << ok.error().ToString();
    rank.next_ns = std::min(rank.next_ns, std::max(now_ns_, rank.looked_ns + kNextTurnNs));
  }
}

void Cluster::FailAll(const Error& error) {
  for (auto& rank : ranks_) rank->engine.Fail(error);
}

bool Cluster::Step() {
  uint64_t next_ns = network_.IsEmpty() ? worker::kNever : network_.NextNs();
  if (!calls_.empty()) next_ns = std::min(next_ns, calls_.front().at_ns);
  if (!ring_messages_.empty()) next_ns = std::min(next_ns, ring_messages_.begin()->first);
  for (const auto& rank : ranks_) next_ns = std::min(next_ns, rank->next_ns);
  if (next_ns == worker::kNever) return false;
  now_ns_ = std::max(now_ns_, next_ns);
  while (!calls_.empty() && calls_.front().at_ns <= now_ns_) {
    const auto call = std::move(calls_.front().run);
    calls_.erase(calls_.begin());
    call();
  }
  while (!network_.IsEmpty() && network_.NextNs() <= now_ns_) Deliver(network_.Take());
  DeliverRing();
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
