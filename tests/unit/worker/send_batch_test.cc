// SPDX-License-Identifier: Apache-2.0
// Between stages 4 and 6: what one UDP GSO hand-over may hold.
#include "send_batch.h"

#include <gtest/gtest.h>

#include <vector>

namespace mlnet::worker {
namespace {

struct Sent {
  size_t flow;
  size_t bytes;
  size_t packet_bytes;
  bool operator==(const Sent&) const = default;
};

class Recorder final : public Transport {
 public:
  Result<void> Send(size_t flow, std::span<const std::byte> packets, size_t packet_bytes) override {
    sent.push_back({flow, packets.size(), packet_bytes});
    if (is_broken) return Err(ErrorCode::kSystem, "no route");
    return {};
  }
  void SetDscp(int) override {}
  const mlnet_cell* Cells() const override { return nullptr; }
  bool NextNotice(mlnet_notice&) override { return false; }
  std::vector<Sent> sent;
  bool is_broken = false;
};

TEST(SendBatch, equal_packets_leave_44_at_a_time) {
  Recorder recorder;
  SendBatch batch(recorder);
  for (int i = 0; i < 45; ++i) batch.Take(0, 1472);
  batch.Flush();
  batch.Flush();
  EXPECT_EQ(recorder.sent, (std::vector<Sent>{{0, 44 * 1472, 1472}, {0, 1472, 1472}}));
}

TEST(SendBatch, a_shorter_packet_is_the_last_of_its_batch) {
  Recorder recorder;
  SendBatch batch(recorder);
  for (size_t bytes : {1472, 1472, 64, 64, 1472}) batch.Take(0, bytes);
  batch.Flush();
  EXPECT_EQ(recorder.sent, (std::vector<Sent>{{0, 1472 * 2 + 64, 1472}, {0, 64, 64}, {0, 1472, 1472}}));
}

TEST(SendBatch, classes_do_not_share_a_batch) {
  Recorder recorder;
  SendBatch batch(recorder);
  batch.Take(0, 100);
  batch.Take(1, 100);
  batch.Flush();
  EXPECT_EQ(recorder.sent, (std::vector<Sent>{{0, 100, 100}, {1, 100, 100}}));
}

TEST(SendBatch, remembers_why_sending_failed) {
  Recorder recorder;
  SendBatch batch(recorder);
  EXPECT_FALSE(batch.last_error().has_value());
  recorder.is_broken = true;
  batch.Take(0, 100);
  batch.Flush();
  ASSERT_TRUE(batch.last_error().has_value());
  EXPECT_EQ(batch.last_error()->message, "no route");
}

}  // namespace
}  // namespace mlnet::worker
