// SPDX-License-Identifier: Apache-2.0
// What the parts of BpfHost share: the maps of a job.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "harness/bpf_host.h"

namespace mlnet::test {

inline void Put(int map, uint32_t key, const void* value) {
  EXPECT_EQ(bpf_map_update_elem(map, &key, value, BPF_ANY), 0) << strerror(errno);
}

struct BpfHost::TreeMaps {
  mlnet_node node{};
  std::map<uint8_t, Fd> words;
};

struct BpfHost::JobMaps {
  std::map<uint8_t, TreeMaps> trees;
  uint32_t stats_id = 0;
  Fd entry, inbox, wake, fan;
  std::vector<uint32_t> ring_ids;
  std::vector<Fd> rings;
  Fd server_inbox, server_wake, server_ring;
  uint32_t server_ring_id = 0;
};

}  // namespace mlnet::test
