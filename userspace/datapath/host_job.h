// SPDX-License-Identifier: Apache-2.0
// What one job has in this host's maps. Destroying it takes the job out again: first the table entry
// (the kernel waits until no packet uses it), then everything that the entry named.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "datapath/inner_map.h"
#include "datapath/key_entry.h"
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
  uint32_t server_inbox_id = 0;    // 0: the job's server is not here
  uint32_t server_ring_id = 0;
  uint16_t epoch = 0;
  std::shared_ptr<const mlnet_key> key;  // of that epoch; null: its packets have no tag
};

class HostJob {
 public:
  static Result<HostJob> Install(const Program& program, const HostJobSpec& spec);
  /// What the table says of a job that an earlier daemon installed, by tree; kUnavailable: it says nothing.
  static Result<std::vector<mlnet_node>> ReadEntry(const Program& program, uint16_t job_id, size_t num_trees);
  /// The job as an earlier daemon installed it, while packets flow: nothing is cleared. `spec`: with the ids of its entry.
  static Result<HostJob> TakeOver(const Program& program, const HostJobSpec& spec);

  /// Makes the words of a pool that has none yet; true when it did. Sound at any time: without words no set of the
  /// pool can have been claimed.
  Result<bool> OpenPool(const Program& program, size_t tree, uint8_t class_stream);
  /// Pools of a tree that wait for their first packet.
  size_t NumUnopened(size_t tree) const { return unopened_.at(tree).size(); }

  /// Changes the table entry in one step.
  Result<void> SetNodes(std::vector<mlnet_node> nodes);
  const mlnet_node& node(size_t tree) const { return nodes_.at(tree); }

  int inbox_fd() const { return ranks_.inbox.inner_fd(); }
  int wake_fd() const { return ranks_.wake.inner_fd(); }
  int ring_fd(size_t local_index) const { return ranks_.rings.at(local_index).inner_fd(); }
  int server_inbox_fd() const { return server_.inbox.inner_fd(); }
  int server_wake_fd() const { return server_.wake.inner_fd(); }
  int server_ring_fd() const { return server_.rings.at(0).inner_fd(); }

 private:
  HostJob() = default;
  Result<void> FillWords(const Program& program, const HostTreeSpec::WordsMap& words);
  Result<void> PutKey(const Program& program, const HostJobSpec& spec);
  Result<void> InstallAggregator(const Program& program, const HostTreeSpec& spec);
  Result<void> TakeOverAggregator(const Program& program, const HostTreeSpec& spec);

  /// What processes of this host read.
  struct Readers {
    Place inbox;
    Place wake;
    std::vector<Place> rings;
  };
  static Result<void> InstallReaders(const Program& program, uint32_t inbox_id, uint32_t cells,
                                     const std::vector<uint32_t>& ring_ids, Readers& readers);
  static Result<void> TakeOverReaders(const Program& program, uint32_t inbox_id, uint32_t cells,
                                      const std::vector<uint32_t>& ring_ids, Readers& readers);

  std::vector<mlnet_node> nodes_;  // by tree
  std::vector<std::vector<HostTreeSpec::WordsMap>> unopened_;  // by tree
  // Destroyed in reverse order: the entry goes first.
  KeyEntry key_;
  std::vector<Place> words_;
  std::vector<Place> fans_;
  Readers ranks_, server_;
  Place entry_;
};

}  // namespace mlnet::datapath
