// SPDX-License-Identifier: Apache-2.0
// One host's XDP program and maps, driven through BPF_PROG_TEST_RUN: no interface, no namespace.
// Several can exist side by side; each has maps of its own.
#pragma once

#include <bpf/bpf.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.h"
#include "harness/frame.h"
#include "mlnet/event.h"
#include "mlnet/job.h"

struct xdp_aggregate;

namespace mlnet::test {

/// CS0 to CS7, the default of mlnetd.toml.
std::array<mlnet_mark, MLNET_CLASSES_MAX> ClassSelectors();

/// One tree of a job as one host sees it. Children may share an address (several ranks on a host).
struct JobSpec {
  uint16_t job = 1;
  uint16_t epoch = 1;
  uint8_t flags = MLNET_NODE_AGGREGATE;  // MLNET_NODE_*
  std::vector<Address> child_addr;       // index = child
  Address aggregator;
  Address group;
  uint8_t log2_slots = 2;
  std::vector<uint8_t> open_pools{};       // class_stream values
  std::vector<uint8_t> pool_log2_slots{};  // of each open pool; none: log2_slots
  std::vector<uint8_t> pool_log2_most{};   // what maps are made for, if later entries may have more; none: the same
  std::vector<uint8_t> local_children;   // children that run on this host, in local order (deliver)
  uint8_t tree = 0;
  uint8_t num_trees = 1;  // of the job, each with the same pools; or what its maps are made for
  bool is_between_epochs = false;  // no packet is under way: the entry is written over, which takes no grace period
  Address local;  // a host with ranks that sums itself: where these send to
  Address root;   // none: aggregator
  Address up;     // inner: the node above, and the own index there
  uint8_t up_child = 0;
  Mac up_mac{};
  uint32_t forward_ns = 0;
  std::array<mlnet_mark, MLNET_CLASSES_MAX> marks = ClassSelectors();
  const mlnet_key* key = nullptr;  // of the epoch; none: packets have no tag
};

struct RunResult {
  int action = -1;       // XDP_*
  Bytes frame;           // after the program; without XDP metadata
  Bytes meta;            // XDP metadata in front of the frame
  std::optional<mlnet_verdict> verdict;  // the counter that moved
};

/// As RunResult, in a buffer that the next run of the same host overwrites.
struct Outcome {
  int action = -1;
  std::span<const uint8_t> frame;
  std::span<const uint8_t> meta;
  uint32_t ns = 0;  // that one run took, as the kernel measured it
};

class BpfHost {
 public:
  /// Fails the current test and returns nullptr when the program cannot be loaded.
  static std::unique_ptr<BpfHost> Create();
  ~BpfHost();

  /// Makes or replaces the job's entry by swapping in a fresh inner map. Pools keep their slots and
  /// words when the job existed before.
  void SetJob(const JobSpec& spec);

  RunResult Run(const Bytes& frame);
  RunResult Run(const Frame& frame) { return Run(frame.Build()); }
  /// The job has no such tree here (any more), and no packet is under way.
  void TakeTreeAway(uint16_t job, uint8_t tree);

  /// For many packets: one system call, nothing copied. Which verdict it was must be seen in Verdicts().
  Outcome RunQuick(std::span<const uint8_t> frame);
  /// Packets that ended in some verdict, of any job and of none.
  uint64_t Verdicts();
  /// The devmap program's body on a frame with metadata: one call per copy. `meta_and_frame` as RunQuick gave them: the
  /// metadata, and the frame right behind it.
  Outcome RunEgressQuick(std::span<const uint8_t> meta_and_frame, size_t meta_bytes);
  RunResult RunEgress(const Bytes& meta, const Bytes& frame);

  mlnet_slot Slot(uint16_t job, uint8_t class_stream, uint32_t slot, uint8_t tree = 0);
  void SetSlot(uint16_t job, uint8_t class_stream, uint32_t slot, const mlnet_slot& value, uint8_t tree = 0);
  mlnet_words Words(uint16_t job, uint8_t class_stream, uint32_t slot, uint32_t set);
  /// As a pool of a class that was never used: without words, and with them again.
  void TakeWordsAway(uint16_t job, uint8_t class_stream);
  void GiveWords(uint16_t job, uint8_t class_stream);
  mlnet_cell Cell(uint16_t job, uint8_t class_stream, uint32_t slot, uint32_t set);
  mlnet_link Link(uint16_t job, uint8_t child);
  void SetLinkMac(uint16_t job, uint8_t child, const Mac& mac, uint8_t tree = 0);
  void SetAsleep(uint16_t job, uint64_t mask);
  uint64_t Asleep(uint16_t job);
  std::vector<mlnet_notice> TakeNotices(uint16_t job, uint32_t local);
  /// What the job's server has on this host (MLNET_NODE_SERVER).
  mlnet_cell ServerCell(uint16_t job, uint8_t class_stream, uint32_t slot, uint32_t set);
  void SetServerAsleep(uint16_t job, uint64_t mask);
  std::vector<mlnet_notice> TakeServerNotices(uint16_t job);
  std::vector<mlnet_event> TakeEvents();
  /// As a packet with a right tag leaves it whose job has ended in between, on every CPU.
  void LeaveTagRight();
  /// Counters of one job (0: packets of no job), summed over CPUs.
  mlnet_stats Stats(uint16_t job);

  int IngressFd() const { return ingress_fd_; }
  int InboxFd(uint16_t job) const;
  int WakeFd(uint16_t job) const;
  int RingFd(uint16_t job, uint32_t local) const;
  int ServerInboxFd(uint16_t job) const;
  int ServerWakeFd(uint16_t job) const;
  int ServerRingFd(uint16_t job) const;

 private:
  struct TreeMaps;
  struct JobMaps;
  BpfHost() = default;
  void FillNode(const JobSpec& spec, const JobMaps& maps, mlnet_node& node);
  void MakeTree(const JobSpec& spec, JobMaps& maps);
  JobMaps& MapsOf(const JobSpec& spec);
  void MakeRings(const JobSpec& spec, JobMaps& maps);
  void WriteEntry(const JobSpec& spec, JobMaps& maps);
  void MakeServer(const JobSpec& spec, JobMaps& maps);

  Outcome TestRun(int program, std::span<const uint8_t> in, size_t meta_bytes, Bytes& out);

  xdp_aggregate* skeleton_ = nullptr;
  int ingress_fd_ = -1;
  int egress_fd_ = -1;
  Bytes out_, egress_out_;
  std::map<uint16_t, std::unique_ptr<JobMaps>> jobs_;
  uint32_t next_slot_ = 0;
  uint32_t next_words_ = 1, next_ring_ = 1, next_link_ = 0;
};

}  // namespace mlnet::test
