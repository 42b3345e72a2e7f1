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

constexpr int kAggregator = 100;  // last byte of its address; worker hosts count from 1
constexpr uint64_t kNextTurnNs = 1'000;

test::Mac MacOf(int number) { return {0x02, 0, 0, 0, 0, static_cast<uint8_t>(number)}; }
uint32_t IpOf(int number) { return test::Ip("192.0.2." + std::to_string(number)); }
uint32_t GroupIp() { return test::Ip("239.77.1.7"); }

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

  Result<void> Send(size_t, std::span<const std::byte> packets, size_t packet_bytes) override {
    for (size_t at = 0; at < packets.size(); at += packet_bytes) {
      cluster_.SendUp(number_, packets.subspan(at, std::min(packet_bytes, packets.size() - at)));
    }
    return {};
  }
  const mlnet_cell* Cells() const override { return inbox_.cells(); }
  bool NextNotice(mlnet_notice& notice) override { return inbox_.NextNotice(notice); }

  void Describe(uint64_t, uint32_t, const std::string& text) override {
    cluster_.descriptions_.push_back("rank " + std::to_string(number_) + ": " + text);
    error_ = Error{ErrorCode::kMismatch, cluster_.descriptions_.back(), {}};
  }
  void Abort(const Error& error) override { error_ = error; }
  void Report(const CommStats&) override {}

  Cluster& cluster_;
  int number_;
  worker::Inbox inbox_;
  std::optional<Error> error_;  // to be told to all ranks, as mlnetd does
  uint64_t next_ns = 0;
  bool is_dead = false;
  worker::Engine engine;
};

Cluster::Cluster(const ClusterOptions& options)
    : options_(options),
      num_hosts_(options.hosts > 0 ? options.hosts : options.ranks),
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
  worker::TreeConfig& tree = config.trees[0];
  tree.aggregator = "192.0.2.100:28012";
  config.small_bytes = options_.small_bytes;
  uint32_t cell_base = 0;
  for (const uint8_t pool : Pools()) {
    const uint8_t log2_slots = Log2Slots(pool);
    (MLNET_STREAM(pool) == 0 ? tree.pools : tree.fixups)[MLNET_CLASS(pool)] = {true, log2_slots, cell_base,
                                                                                   options_.first_seq};
    cell_base += 2U << log2_slots;
  }
  for (int r = 0; r < options_.ranks; ++r) {
    test::BpfHost& host = *hosts_[static_cast<size_t>(HostOf(r))];
    const auto local = static_cast<uint32_t>(r / num_hosts_);
    auto inbox = worker::Inbox::Open(host.InboxFd(job_), host.WakeFd(job_), host.RingFd(job_, local), local);
    EXPECT_TRUE(inbox.has_value()) << inbox.error().ToString();
    config.rank = r;
    tree.child = static_cast<uint8_t>(r);
    ranks_.push_back(std::make_unique<Rank>(*this, r, std::move(*inbox), config));
  }
}

Cluster::~Cluster() = default;

test::JobSpec Cluster::JobOf(int host) const {
  test::JobSpec spec;
  spec.job = job_;
  spec.flags = host == num_hosts_ ? MLNET_NODE_AGGREGATE : MLNET_NODE_DELIVER;
  if (options_.is_multicast) spec.flags |= MLNET_NODE_MULTICAST;
  for (int r = 0; r < options_.ranks; ++r) spec.child_addr_be.push_back(IpOf(HostOf(r) + 1));
  spec.aggregator_be = IpOf(kAggregator);
  spec.group_be = GroupIp();
  for (const uint8_t pool : Pools()) {
    spec.open_pools.push_back(pool);
    spec.pool_log2_slots.push_back(Log2Slots(pool));
  }
  for (int r = host; r < options_.ranks && host < num_hosts_; r += num_hosts_) {
    spec.local_children.push_back(static_cast<uint8_t>(r));
  }
  return spec;
}

void Cluster::SetUpHosts() {
  for (int h = 0; h <= num_hosts_; ++h) {
    hosts_.push_back(HostNumber(static_cast<size_t>(h)));
    hosts_.back()->SetJob(JobOf(h));
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
      hosts_.back()->SetSlot(job_, pool, static_cast<uint32_t>(next % slots), slot);
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
mlnet_stats Cluster::AggregatorStats() { return hosts_.back()->Stats(job_); }
void Cluster::Kill(int rank) { ranks_[static_cast<size_t>(rank)]->is_dead = true; }

void Cluster::SendUp(int rank, std::span<const std::byte> packet) {
  test::Frame addresses;
  addresses.saddr_be = IpOf(HostOf(rank) + 1);
  addresses.daddr_be = IpOf(kAggregator);
  addresses.src_mac = MacOf(HostOf(rank) + 1);
  addresses.dst_mac = MacOf(kAggregator);
  addresses.words.resize((packet.size() - sizeof(mlnet_hdr) - sizeof(mlnet_trailer)) / 8);
  test::Bytes frame = addresses.Build();  // the right length; then the packet as the engine built it
  std::memcpy(frame.data() + frame.size() - packet.size(), packet.data(), packet.size());
  network_.Send(now_ns_, HostOf(rank), num_hosts_, std::move(frame));
}

void Cluster::Deliver(Arrival arrival) {
  if (arrival.frame.size() < 14) return;
  test::BpfHost& host = *hosts_[static_cast<size_t>(arrival.host)];
  const test::RunResult run = host.Run(arrival.frame);
  if (run.action == XDP_TX) Forward(run.frame);
  if (run.action == XDP_REDIRECT) ForwardCopies(run);
  if (arrival.host < num_hosts_) RunRanks(arrival.host);
}

// The switch: by destination address; a group goes to every worker host.
void Cluster::Forward(const test::Bytes& frame) {
  uint32_t daddr_be;
  std::memcpy(&daddr_be, frame.data() + 30, sizeof(daddr_be));
  for (int h = 0; h < num_hosts_; ++h) {
    if (daddr_be == GroupIp() || daddr_be == IpOf(h + 1)) network_.Send(now_ns_, num_hosts_, h, frame);
  }
}

void Cluster::ForwardCopies(const test::RunResult& run) {
  for (int copy = 0; copy < num_hosts_; ++copy) {
    const test::RunResult sent = hosts_.back()->RunEgress(run.meta, run.frame);
    EXPECT_EQ(sent.action, XDP_PASS);
    Forward(sent.frame);
  }
}

void Cluster::RunRanks(int host) {
  for (int r = host; r < options_.ranks; r += num_hosts_) RunRank(*ranks_[static_cast<size_t>(r)]);
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
