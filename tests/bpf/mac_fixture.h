// SPDX-License-Identifier: Apache-2.0
// Hosts of a job whose packets carry a tag: the root of three workers, a host of workers, and a node between.
#pragma once

#include <map>

#include "base/clock.h"
#include "bpf/fixture.h"
#include "harness/reference_mac.h"

namespace mlnet::test {

inline const mlnet_key kKey = TestKey(1), kOtherKey = TestKey(2);
inline const Mac kParentMac{0x02, 0, 0, 0, 0, 0xb0};
inline constexpr size_t kBlocks = 2;

inline Address ParentIp() { return Ip("192.0.2.200"); }

inline Frame Tagged(Frame f, const mlnet_key* key = &kKey) {
  f.key = key;
  return f;
}

inline Frame FromChild(uint8_t child, uint64_t seq, size_t blocks = kBlocks) { return Tagged(Contribution(child, seq, blocks)); }

inline void ExpectTag(const Bytes& frame, const mlnet_key& key = kKey) {
  const Parsed parsed = ParseFrame(frame);
  EXPECT_TRUE(parsed.check_ok);
  ASSERT_TRUE(parsed.tag.has_value());
  EXPECT_EQ(*parsed.tag, ReferenceTag(key, frame));
}

class MacFixture : public AggregatorTest {
 protected:
  void SetUp() override {
    host_ = BpfHost::Create();
    ASSERT_NE(host_, nullptr);
  }
  void Root(uint8_t flags = MLNET_NODE_MULTICAST, const mlnet_key* key = &kKey) {
    JobSpec spec = Job(MLNET_NODE_AGGREGATE | flags);
    spec.key = key;
    host_->SetJob(spec);
  }
  void Worker() {
    JobSpec spec = Job(MLNET_NODE_DELIVER);
    spec.local_children = {1, 2};
    spec.key = &kKey;
    host_->SetJob(spec);
  }
  void Rack() {
    JobSpec spec = Job(MLNET_NODE_AGGREGATE | MLNET_NODE_INNER);
    spec.root = spec.up = ParentIp();
    spec.up_mac = kParentMac;
    spec.up_child = 5;
    spec.key = &kKey;
    host_->SetJob(spec);
  }
  static Frame Result(uint64_t seq) {
    Frame f = Tagged(Contribution(0, seq, kBlocks));
    f.child = MLNET_CHILD_ALL;
    f.type = MLNET_T_RESULT;
    f.saddr = AggregatorIp();
    f.daddr = GroupIp();
    f.weight = 3;
    return f;
  }
  static Frame Reply(uint8_t type, uint8_t child) {
    Frame f = Tagged(Contribution(0, 1, kBlocks));
    f.type = type;
    f.child = child;
    f.saddr = AggregatorIp();
    f.daddr = WorkerIp(child);
    f.HeaderOnly(kBlocks * MLNET_BLOCK_WORDS);
    return f;
  }

  static Frame Ping(uint8_t child, uint64_t seq) {
    Frame f = FromChild(child, seq).HeaderOnly(0);
    f.type = MLNET_T_PING;
    return f;
  }
  /// The answer to a PING that this host sent `age_ns` ago.
  static Frame Pong(uint8_t child, int64_t age_ns) {
    Frame f = Reply(MLNET_T_PONG, child).HeaderOnly(0);
    f.seq = MLNET_PING_SEQ(static_cast<int64_t>(MonotonicClock().NowNs()) - age_ns);
    return f;
  }

  /// All that packets could have changed on this host.
  Bytes State(bool has_inbox) {
    Bytes state;
    const auto add = [&](const auto& value) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
      state.insert(state.end(), bytes, bytes + sizeof(value));
    };
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      add(host_->Slot(kJob, 0, slot));
      for (uint32_t set = 0; set < 2; ++set) {
        add(host_->Words(kJob, 0, slot, set));
        if (has_inbox) add(host_->Cell(kJob, 0, slot, set));
      }
    }
    for (uint8_t child = 0; child < kChildren; ++child) add(host_->Link(kJob, child));
    return state;
  }
  size_t NumRecords(bool has_inbox) {
    size_t count = host_->TakeEvents().size();
    for (uint32_t local = 0; has_inbox && local < 2; ++local) count += host_->TakeNotices(kJob, local).size();
    return count;
  }
};

}  // namespace mlnet::test
