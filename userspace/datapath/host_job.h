// SPDX-License-Identifier: Apache-2.0
// What one job has in this host's maps. Destroying it takes the job out again: first the table entry
// (the kernel waits until no packet uses it), then everything that the entry named.
#pragma once

#include <cstdint>
#include <vector>

#include "datapath/inner_map.h"
#include "datapath/program.h"
#include "mlnet/job.h"

namespace mlnet::datapath {

struct HostTreeSpec {
  mlnet_node node{};
  uint32_t slot_base = 0, num_slots = 0;  // of all classes (aggregate)
  struct WordsMap {
    uint32_t id = 0;
    uint32_t entries = 0;  // two a slot
    uint8_t class_stream = 0;
    bool is_lazy = false;  // made by OpenPool, at the first packet
  };
  std::vector<WordsMap> words;            // one per pool (aggregate)
  int fan_ifindex = 0;                    // where copies leave (aggregate)
};

struct HostJobSpec {
  uint16_t job_id = 0;
  std::vector<HostTreeSpec> trees;
  uint32_t inbox_id = 0;           // 0: no ranks here
  uint32_t inbox_cells = 0;
  std::vector<uint32_t> ring_ids;  // one per local rank
};

class HostJob {
 public:
  static Result<HostJob> Install(const Program& program, const HostJobSpec& spec);

  /// Makes the words of a pool that has none yet; true when it did. Sound at any time: without words no set of the
  /// pool can have been claimed.
  Result<bool> OpenPool(const Program& program, size_t tree, uint8_t class_stream);
  /// Pools of a tree that wait for their first packet.
  size_t NumUnopened(size_t tree) const { return unopened_.at(tree).size(); }

  /// Changes the table entry in one step.
  Result<void> SetNodes(std::vector<mlnet_node> nodes);
  const mlnet_node& node(size_t tree) const { return nodes_.at(tree); }

  int inbox_fd() const { return inbox_.inner_fd(); }
  int wake_fd() const { return wake_.inner_fd(); }
  int ring_fd(size_t local_index) const { return rings_.at(local_index).inner_fd(); }

 private:
  HostJob() = default;
  Result<void> FillWords(const Program& program, const HostTreeSpec::WordsMap& words);
  Result<void> InstallAggregator(const Program& program, const HostTreeSpec& spec);
  Result<void> InstallWorker(const Program& program, const HostJobSpec& spec);

  std::vector<mlnet_node> nodes_;  // by tree
  std::vector<std::vector<HostTreeSpec::WordsMap>> unopened_;  // by tree
  // Destroyed in reverse order: the entry goes first.
  std::vector<Place> words_;
  std::vector<Place> fans_;
  Place inbox_;
  Place wake_;
  std::vector<Place> rings_;
  Place entry_;
};

}  // namespace mlnet::datapath
