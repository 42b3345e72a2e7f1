// SPDX-License-Identifier: Apache-2.0
// What the tc program adds to a send. A GSO batch of up to 44 packets passes it once.
#include <benchmark/benchmark.h>
#include <bpf/libbpf.h>

#include <stdexcept>

#include "compare.h"
#include "mlnet/config.h"  // the skeleton names its struct
#include "mlnet/tag.h"
#include "packets.h"
#include "priority_tag.skel.h"

namespace mlnet::bench {
namespace {

/// ml_tag with one job of one class, whose packets are marked as they are sent: what libmlnet does.
class Tagger {
 public:
  Tagger() : skeleton_(priority_tag::open_and_load()) {
    if (skeleton_ == nullptr) throw std::runtime_error("cannot load priority_tag (root or CAP_BPF needed)");
    mlnet_node node{};
    node.flags = MLNET_NODE_DELIVER;
    node.epoch = 1;
    node.uid = MLNET_UID_ANY;
    node.pools[0].is_open = 1;
    entry_ = Fd(bpf_map_create(BPF_MAP_TYPE_ARRAY, "b_job", sizeof(uint32_t), sizeof(node), MLNET_TREES_MAX, nullptr));
    const uint32_t tree = 0, job = test::kJob;
    const int fd = entry_.get();
    if (bpf_map_update_elem(fd, &tree, &node, BPF_ANY) != 0 ||
        bpf_map_update_elem(bpf_map__fd(skeleton_->maps.ml_jobs), &job, &fd, BPF_ANY) != 0) {
      throw std::runtime_error("cannot write the job's entry");
    }
  }
  ~Tagger() { priority_tag::destroy(skeleton_); }
  int fd() const { return bpf_program__fd(skeleton_->progs.ml_tag); }

 private:
  priority_tag* skeleton_;
  Fd entry_;
};

void Tag(benchmark::State& state, uint16_t port) {
  constexpr uint32_t kPackets = 1000;
  const Tagger tagger;
  Packets& packets = Packets::Get();
  test::Frame f = test::Contribution(0, 0);
  f.dst_port = port;
  const test::Bytes frame = f.Build();
  std::vector<double> ns;
  for (auto _ : state) {
    const double whole = packets.Repeat(tagger.fd(), frame, kPackets);
    ns.push_back(whole - packets.Repeat(packets.EmptyTcFd(), frame, kPackets));
    state.SetIterationTime(std::max(ns.back(), 0.0) * 1e-9 * kPackets);
  }
  state.counters["ns"] = MedianOf(ns);
}

BENCHMARK_CAPTURE(Tag, contribution, MLNET_UDP_PORT)->UseManualTime();
BENCHMARK_CAPTURE(Tag, foreign, 443)->UseManualTime();

}  // namespace
}  // namespace mlnet::bench
