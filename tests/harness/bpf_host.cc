// SPDX-License-Identifier: Apache-2.0
#include "harness/bpf_host.h"

#include <bpf/libbpf.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>

#include "harness/bpf_host_maps.h"
#include "mlnet/config.h"  // the skeleton names its struct
#include "xdp_aggregate.skel.h"

namespace mlnet::test {
namespace {

template <typename T>
T Get(int map, uint32_t key) {
  T value{};
  EXPECT_EQ(bpf_map_lookup_elem(map, &key, &value), 0) << strerror(errno);
  return value;
}

template <typename Record>
std::vector<Record> Drain(int ring_fd) {
  std::vector<Record> records;
  auto take = [](void* out, void* data, size_t size) {
    EXPECT_EQ(size, sizeof(Record));
    static_cast<std::vector<Record>*>(out)->push_back(*static_cast<Record*>(data));
    return 0;
  };
  ring_buffer* ring = ring_buffer__new(ring_fd, take, &records, nullptr);
  EXPECT_NE(ring, nullptr);
  ring_buffer__consume(ring);
  ring_buffer__free(ring);
  return records;
}

// The skeleton's own object, or another one with the same maps and programs: a mutant (tests/mutants).
xdp_aggregate* Open() {
  const char* path = std::getenv("MLNET_BPF_OBJECT");
  if (path == nullptr) return xdp_aggregate::open();
  static const std::string object = [&] {
    std::printf("object under test: %s\n", path);
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  auto* skeleton = static_cast<xdp_aggregate*>(std::calloc(1, sizeof(xdp_aggregate)));
  if (skeleton == nullptr || xdp_aggregate__create_skeleton(skeleton) != 0) return nullptr;
  skeleton->skeleton->data = object.data();
  skeleton->skeleton->data_sz = object.size();
  if (bpf_object__open_skeleton(skeleton->skeleton, nullptr) == 0) return skeleton;
  xdp_aggregate::destroy(skeleton);
  return nullptr;
}

}  // namespace

std::array<mlnet_mark, MLNET_CLASSES_MAX> ClassSelectors() {
  std::array<mlnet_mark, MLNET_CLASSES_MAX> marks{};
  for (uint8_t c = 0; c < marks.size(); ++c) marks[c] = {static_cast<uint8_t>(8 * c << 2), c};
  return marks;
}

std::unique_ptr<BpfHost> BpfHost::Create() {
  libbpf_set_print([](libbpf_print_level level, const char* format, va_list args) {
    return level == LIBBPF_WARN ? vfprintf(stderr, format, args) : 0;
  });
  std::unique_ptr<BpfHost> host(new BpfHost);
  host->skeleton_ = Open();
  if (host->skeleton_ == nullptr || xdp_aggregate::load(host->skeleton_) != 0) {
    ADD_FAILURE() << "cannot load xdp_aggregate: " << strerror(errno) << " (root or CAP_BPF needed)";
    return nullptr;
  }
  host->ingress_fd_ = bpf_program__fd(host->skeleton_->progs.ml_ingress);
  host->egress_fd_ = bpf_program__fd(host->skeleton_->progs.ml_egress_test);
  return host;
}

BpfHost::~BpfHost() { xdp_aggregate::destroy(skeleton_); }

// data_out starts at the metadata; ctx_out says how much of it there is.
Outcome BpfHost::TestRun(int program, std::span<const uint8_t> in, size_t meta_bytes, Bytes& out) {
  if (out.size() < in.size() + 512) out.resize(in.size() + 512);
  xdp_md ctx_in{}, ctx_out{};
  ctx_in.data = static_cast<uint32_t>(meta_bytes);
  ctx_in.data_end = static_cast<uint32_t>(in.size());
  bpf_test_run_opts opts{};
  opts.sz = sizeof(opts);
  opts.data_in = in.data();
  opts.data_size_in = static_cast<uint32_t>(in.size());
  opts.data_out = out.data();
  opts.data_size_out = static_cast<uint32_t>(out.size());
  opts.ctx_in = &ctx_in;
  opts.ctx_size_in = sizeof(ctx_in);
  opts.ctx_out = &ctx_out;
  opts.ctx_size_out = sizeof(ctx_out);
  opts.repeat = 1;
  if (bpf_prog_test_run_opts(program, &opts) != 0) {
    ADD_FAILURE() << "frame of " << in.size() << " bytes: " << strerror(errno);
    return {};
  }
  const size_t meta_out = ctx_out.data - ctx_out.data_meta;
  const std::span<const uint8_t> whole(out.data(), opts.data_size_out);
  return {static_cast<int>(opts.retval), whole.subspan(meta_out), whole.first(meta_out), opts.duration};
}

namespace {

RunResult CopyOf(const Outcome& outcome) {
  RunResult result;
  result.action = outcome.action;
  result.frame.assign(outcome.frame.begin(), outcome.frame.end());
  result.meta.assign(outcome.meta.begin(), outcome.meta.end());
  return result;
}

}  // namespace

Outcome BpfHost::RunQuick(std::span<const uint8_t> frame) { return TestRun(ingress_fd_, frame, 0, out_); }

uint64_t BpfHost::Verdicts() {
  const auto count = [](const mlnet_stats& stats) {
    return std::accumulate(std::begin(stats.verdicts), std::end(stats.verdicts), uint64_t{0});
  };
  uint64_t sum = count(Stats(0));
  for (const auto& [job, maps] : jobs_) sum += count(Stats(job));
  return sum;
}

RunResult BpfHost::Run(const Bytes& frame) {
  std::map<uint16_t, mlnet_stats> before;
  before[0] = Stats(0);
  for (const auto& [job, maps] : jobs_) before[job] = Stats(job);
  RunResult result = CopyOf(RunQuick(frame));
  int moved = 0;
  for (const auto& [job, old] : before) {
    const mlnet_stats now = Stats(job);
    for (unsigned v = 0; v < MLNET_V_COUNT; ++v) {
      if (now.verdicts[v] == old.verdicts[v]) continue;
      moved += static_cast<int>(now.verdicts[v] - old.verdicts[v]);
      result.verdict = static_cast<mlnet_verdict>(v);
    }
  }
  EXPECT_EQ(moved, 1) << "a packet ends in exactly one verdict";
  return result;
}

Outcome BpfHost::RunEgressQuick(std::span<const uint8_t> meta_and_frame, size_t meta_bytes) {
  return TestRun(egress_fd_, meta_and_frame, meta_bytes, egress_out_);
}

RunResult BpfHost::RunEgress(const Bytes& meta, const Bytes& frame) {
  Bytes in = meta;
  in.insert(in.end(), frame.begin(), frame.end());
  return CopyOf(RunEgressQuick(in, meta.size()));
}

mlnet_slot BpfHost::Slot(uint16_t job, uint8_t class_stream, uint32_t slot, uint8_t tree) {
  return Get<mlnet_slot>(bpf_map__fd(skeleton_->maps.ml_slots),
                         jobs_.at(job)->trees.at(tree).node.pools[class_stream].slot_base + slot);
}

void BpfHost::SetSlot(uint16_t job, uint8_t class_stream, uint32_t slot, const mlnet_slot& value, uint8_t tree) {
  Put(bpf_map__fd(skeleton_->maps.ml_slots), jobs_.at(job)->trees.at(tree).node.pools[class_stream].slot_base + slot, &value);
}

void BpfHost::TakeWordsAway(uint16_t job, uint8_t class_stream) {
  const uint32_t id = jobs_.at(job)->trees.at(0).node.pools[class_stream].words_id;
  ASSERT_EQ(bpf_map_delete_elem(bpf_map__fd(skeleton_->maps.ml_words), &id), 0);
}

void BpfHost::GiveWords(uint16_t job, uint8_t class_stream) {
  const TreeMaps& tree = jobs_.at(job)->trees.at(0);
  const int fd = tree.words.at(class_stream).get();
  Put(bpf_map__fd(skeleton_->maps.ml_words), tree.node.pools[class_stream].words_id, &fd);
}

mlnet_words BpfHost::Words(uint16_t job, uint8_t class_stream, uint32_t slot, uint32_t set) {
  return Get<mlnet_words>(jobs_.at(job)->trees.at(0).words.at(class_stream).get(), slot * 2 + set);
}

mlnet_cell BpfHost::Cell(uint16_t job, uint8_t class_stream, uint32_t slot, uint32_t set) {
  const JobMaps& maps = *jobs_.at(job);
  return Get<mlnet_cell>(maps.inbox.get(), maps.trees.at(0).node.pools[class_stream].cell_base + slot * 2 + set);
}

mlnet_cell BpfHost::ServerCell(uint16_t job, uint8_t class_stream, uint32_t slot, uint32_t set) {
  const JobMaps& maps = *jobs_.at(job);
  return Get<mlnet_cell>(maps.server_inbox.get(), maps.trees.at(0).node.pools[class_stream].cell_base + slot * 2 + set);
}

mlnet_link BpfHost::Link(uint16_t job, uint8_t child) {
  return Get<mlnet_link>(bpf_map__fd(skeleton_->maps.ml_links), jobs_.at(job)->trees.at(0).node.link_base + child);
}

void BpfHost::SetLinkMac(uint16_t job, uint8_t child, const Mac& mac, uint8_t tree) {
  mlnet_link link{};
  std::memcpy(&link.mac, mac.data(), mac.size());
  Put(bpf_map__fd(skeleton_->maps.ml_links), jobs_.at(job)->trees.at(tree).node.link_base + child, &link);
}

void BpfHost::SetAsleep(uint16_t job, uint64_t mask) {
  mlnet_wake wake{mask};
  Put(jobs_.at(job)->wake.get(), 0, &wake);
}

uint64_t BpfHost::Asleep(uint16_t job) { return Get<mlnet_wake>(jobs_.at(job)->wake.get(), 0).asleep; }

std::vector<mlnet_notice> BpfHost::TakeNotices(uint16_t job, uint32_t local) {
  return Drain<mlnet_notice>(jobs_.at(job)->rings.at(local).get());
}

void BpfHost::SetServerAsleep(uint16_t job, uint64_t mask) {
  mlnet_wake wake{mask};
  Put(jobs_.at(job)->server_wake.get(), 0, &wake);
}

std::vector<mlnet_notice> BpfHost::TakeServerNotices(uint16_t job) {
  return Drain<mlnet_notice>(jobs_.at(job)->server_ring.get());
}

std::vector<mlnet_event> BpfHost::TakeEvents() {
  return Drain<mlnet_event>(bpf_map__fd(skeleton_->maps.ml_events));
}

void BpfHost::LeaveTagRight() {
  std::vector<mlnet_mac_state> per_cpu(static_cast<size_t>(libbpf_num_possible_cpus()), {1, 0});
  Put(bpf_map__fd(skeleton_->maps.ml_mac_state), 0, per_cpu.data());
}

mlnet_stats BpfHost::Stats(uint16_t job) {
  const int cpus = libbpf_num_possible_cpus();
  std::vector<mlnet_stats> per_cpu(static_cast<size_t>(cpus));
  const uint32_t key = job == 0 ? 0 : jobs_.at(job)->stats_id;
  EXPECT_EQ(bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.ml_stats), &key, per_cpu.data()), 0);
  mlnet_stats sum{};
  for (const mlnet_stats& one : per_cpu) {
    for (unsigned v = 0; v < MLNET_VERDICTS_MAX; ++v) sum.verdicts[v] += one.verdicts[v];
    sum.bytes_in += one.bytes_in;
    sum.words_summed += one.words_summed;
    sum.contributions += one.contributions;
    sum.results += one.results;
  }
  return sum;
}

int BpfHost::InboxFd(uint16_t job) const { return jobs_.at(job)->inbox.get(); }
int BpfHost::WakeFd(uint16_t job) const { return jobs_.at(job)->wake.get(); }
int BpfHost::RingFd(uint16_t job, uint32_t local) const { return jobs_.at(job)->rings.at(local).get(); }
int BpfHost::ServerInboxFd(uint16_t job) const { return jobs_.at(job)->server_inbox.get(); }
int BpfHost::ServerWakeFd(uint16_t job) const { return jobs_.at(job)->server_wake.get(); }
int BpfHost::ServerRingFd(uint16_t job) const { return jobs_.at(job)->server_ring.get(); }

}  // namespace mlnet::test
