// SPDX-License-Identifier: Apache-2.0
// Watches the frames on the simulated network and knows, without asking program or engine, what each of them must hold.
//   - a partial sum or a result is that of exactly the ranks below its sender, each once, whenever it is sent again
//   - a rank sends s only after the result of s - P has reached its host, so all ranks have sent s - P (rules 2 and 3)
//   - nothing leaves a host with an epoch that is not the job's
// It computes sums lane by lane from what the ranks sent first; it shares no code with what it watches.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "mlnet/wire.h"
#include "sim/cluster_options.h"
#include "sim/tree_shape.h"

namespace mlnet::sim {

class Observer {
 public:
  Observer(const ClusterOptions& options, const TreeShape& shape, uint16_t job, uint16_t epoch);

  /// A rank's packet, header to trailer, on its way up.
  void OnSent(int rank, std::span<const std::byte> packet);
  /// What a host's program sent, Ethernet to padding.
  void OnEmitted(int host, std::span<const uint8_t> frame);
  /// What reaches a host, after all faults.
  void OnArrived(int host, std::span<const uint8_t> frame);

  uint64_t sums_compared() const { return sums_compared_; }
  /// What was wrong, the first few.
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  struct Contribution {
    bool is_sent = false;
    bool has_data = false;
    uint8_t flags = 0;
    std::vector<uint64_t> words;
    std::array<uint8_t, MLNET_EXPS_BYTES> exps{};
  };
  // What a packet must hold that carries the sum of some ranks.
  struct Expected {
    std::vector<uint64_t> words;
    std::array<uint8_t, MLNET_EXPS_BYTES> exps{};
    unsigned weight = 0, flags = 0;
  };
  struct Sum {
    std::vector<Contribution> ranks;
    std::map<int, Expected> expected;  // of all parts (kAll), or of those below a host; made once all of these are there
    uint64_t reached = 0;  // bit per host that the result has come to
    int num_sent = 0;
    uint8_t op = 0, wire = 0;
  };
  struct Packet {
    mlnet_hdr header{};
    mlnet_trailer trailer{};
    uint64_t seq = 0;
    std::span<const uint8_t> payload;
  };

  static bool Cut(std::span<const uint8_t> bytes, Packet& packet);
  static bool CutFrame(std::span<const uint8_t> frame, Packet& packet);
  Sum* Find(const Packet& packet);
  static uint64_t KeyOf(uint8_t tree, uint8_t class_stream, uint64_t seq);
  void CheckOrder(int rank, const Packet& packet);
  static constexpr int kAll = -1;
  /// What the parts of `whose` must come to, a host or kAll. Null, and why not: one of them has not been sent.
  const Expected* ExpectedOf(int whose, Sum& sum, uint8_t tree, std::string& why);
  bool HoldsSumOf(int whose, Sum& sum, const Packet& packet, std::string& why);
  const std::vector<int>& RanksBelow(int host, int tree);
  void Complain(const Packet& packet, const std::string& what);

  const ClusterOptions options_;
  const TreeShape shape_;
  const uint16_t job_, epoch_;
  std::unordered_map<uint64_t, Sum> sums_;
  std::vector<int> all_ranks_;
  std::map<std::pair<int, int>, std::vector<int>> below_;  // ranks whose parts end up in a host's partial sum, by host and tree
  uint64_t sums_compared_ = 0;
  std::vector<std::string> complaints_;
};

}  // namespace mlnet::sim
