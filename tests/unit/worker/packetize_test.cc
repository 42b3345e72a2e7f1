// SPDX-License-Identifier: Apache-2.0
// Stage 4: header, payload and trailer of every kind of packet, read back through the wire library.
#include "packetize.h"

#include <gtest/gtest.h>

#include <cstring>

#include "wire/packet.h"

namespace mlnet::worker {
namespace {

EngineConfig Config(int rank) {
  EngineConfig config;
  config.job = 0x1234;
  config.epoch = 7;
  config.rank = rank;
  config.world_size = 4;
  config.trees[0].tree = 3;
  config.trees[0].child = static_cast<uint8_t>(rank + 10);
  config.trees[0].pools[2] = {true, 3, 0, 0};
  return config;
}

struct Made {
  Counters counters;
  Collective collective;
};

std::unique_ptr<Made> Make(int rank, CollectiveSpec spec, uint64_t first_seq) {
  auto made = std::make_unique<Made>();
  spec.traffic_class = 2;
  made->collective.call = std::make_shared<Call>();
  made->collective.call->spec = spec;
  made->collective.traffic = MakeTraffic(spec, {.rank = rank, .world_size = 4, .slots = 8}, made->counters);
  made->collective.fingerprint = Fingerprint(spec);
  made->collective.first_seq = first_seq;
  return made;
}

// The answer to the only probe: every block of the first eight packets has this exponent pair.
void AnswerProbe(Collective& collective, uint8_t largest) {
  mlnet_cell cell{};
  auto* bytes = reinterpret_cast<uint8_t*>(cell.w);
  for (size_t i = 0; i < 8 * MLNET_EXPS_BYTES; i += 2) {
    bytes[i] = largest;
    bytes[i + 1] = static_cast<uint8_t>(255 - largest);
  }
  collective.traffic->Take(0, cell);
}

struct Built {
  std::vector<std::byte> bytes;
  wire::View view{};
  uint64_t Word(size_t i) const {
    uint64_t word;
    std::memcpy(&word, view.payload.data() + i * 8, 8);
    return word;
  }
};

Built Build(int rank, const Collective& collective, uint64_t packet, bool is_retry) {
  const EngineConfig config = Config(rank);
  const Packetizer packetizer(config, config.trees[0]);
  Built built;
  built.bytes.resize(packetizer.Bytes(collective, packet, is_retry));
  packetizer.Build(collective, 0, packet, is_retry, built.bytes);
  EXPECT_TRUE(wire::Parse(built.bytes, built.view));
  EXPECT_TRUE(wire::Verify(built.view));
  EXPECT_EQ(built.view.header.job, 0x1234);
  EXPECT_EQ(built.view.header.epoch, 7);
  EXPECT_EQ(built.view.header.tree, 3);
  EXPECT_EQ(built.view.header.class_stream, 2);
  EXPECT_EQ(built.view.header.child, rank + 10);
  EXPECT_EQ(built.view.header.fingerprint, collective.fingerprint);
  EXPECT_EQ(wire::Seq(built.view.header), collective.first_seq + packet);
  EXPECT_EQ((built.view.header.flags & MLNET_F_RETRY) != 0, is_retry);
  return built;
}

CollectiveSpec Floats(const std::vector<float>& in) {
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kAllReduce;
  spec.in = in.data();
  spec.count = in.size();
  return spec;
}

TEST(Packetize, a_probe_carries_the_exponents_of_the_packets_it_covers) {
  std::vector<float> in(352 * 10, 1.0F);  // exponent 127
  in[352 * 3] = 4.0F;                     // packet 3, block 0: largest 129
  const auto made = Make(1, Floats(in), 0xfffffffeULL);
  const Collective& collective = made->collective;
  ASSERT_EQ(collective.traffic->packets(), 11u);
  const Built probe = Build(1, collective, 0, false);
  EXPECT_EQ(probe.view.header.op_wire, wire::OpWire(MLNET_OP_MAX8, MLNET_WIRE_EXPS));
  EXPECT_EQ(probe.view.header.words, 32);  // 8 packets * 22 bytes = 176, two blocks
  EXPECT_EQ(probe.view.trailer.weight, 1);
  const auto* bytes = reinterpret_cast<const uint8_t*>(probe.view.payload.data());
  EXPECT_EQ(bytes[0], 127);
  EXPECT_EQ(bytes[1], 255 - 127);
  EXPECT_EQ(bytes[3 * 22], 129);
  EXPECT_EQ(bytes[3 * 22 + 1], 255 - 127);
  EXPECT_EQ(bytes[8 * 22], 0);  // padding
}

TEST(Packetize, a_data_packet_carries_biased_lanes_and_the_exponents_one_pool_ahead) {
  std::vector<float> in(352 * 10, 1.0F);
  in[352 * 9 + 32] = 0.25F;  // packet 9, block 1: smallest 125
  const auto made = Make(0, Floats(in), 100);
  Collective& collective = made->collective;
  EXPECT_FALSE(collective.traffic->IsReady(1));
  AnswerProbe(collective, 128);  // T = 4
  EXPECT_TRUE(collective.traffic->IsReady(1));
  const Built first = Build(0, collective, 1 + 1, false);
  EXPECT_EQ(first.view.header.op_wire, wire::OpWire(MLNET_OP_ADD64, MLNET_WIRE_BIASED32));
  EXPECT_EQ(first.view.header.words, 176);
  const uint64_t lane = (1ULL << 29) + (1ULL << 27);  // four ranks: R = 2^29; 1.0 of T = 4 is R / 4
  EXPECT_EQ(first.Word(0), lane | lane << 32);
  EXPECT_EQ(first.view.trailer.exps[2], 127);  // packet 1 is 8 = P before packet 9
  EXPECT_EQ(first.view.trailer.exps[3], 255 - 125);
  const Built last = Build(0, collective, 1 + 9, false);
  for (uint8_t e : last.view.trailer.exps) EXPECT_EQ(e, 0);
}

TEST(Packetize, a_retry_of_data_has_the_same_payload) {
  const std::vector<float> in(400, 3.0F);
  const auto made = Make(3, Floats(in), 0);
  Collective& collective = made->collective;
  AnswerProbe(collective, 130);
  const Built once = Build(3, collective, 1, false), again = Build(3, collective, 1, true);
  ASSERT_EQ(once.bytes.size(), again.bytes.size());
  EXPECT_EQ(std::memcmp(once.view.payload.data(), again.view.payload.data(), once.view.payload.size()), 0);
}

TEST(Packetize, integers_travel_as_they_are_with_zero_padding) {
  const std::vector<int32_t> in{1, -2, 3};
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kAllReduce;
  spec.dtype = DataType::kInt32;
  spec.in = in.data();
  spec.count = 3;
  const Built packet = Build(0, Make(0, spec, 5)->collective, 0, false);
  EXPECT_EQ(packet.view.header.op_wire, wire::OpWire(MLNET_OP_ADD32, MLNET_WIRE_INT32));
  EXPECT_EQ(packet.view.header.words, 16);
  EXPECT_EQ(packet.Word(0), 0xfffffffe00000001ULL);
  EXPECT_EQ(packet.Word(1), 3u);
  EXPECT_EQ(packet.Word(15), 0u);
}

TEST(Packetize, only_the_owner_of_raw_bytes_sends_them) {
  std::vector<uint8_t> in(200, 0xab);
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kBroadcast;
  spec.in = in.data();
  spec.count = in.size();
  spec.root = 2;
  const auto by_owner = Make(2, spec, 0), by_other = Make(0, spec, 0);
  const Built owner = Build(2, by_owner->collective, 0, false);
  EXPECT_EQ(owner.view.header.words, 32);
  EXPECT_EQ(owner.view.header.flags, 0);
  EXPECT_EQ(owner.view.trailer.weight, 1);
  EXPECT_EQ(owner.Word(24), 0xababababababababULL);
  EXPECT_EQ(owner.Word(25), 0u);

  const Built other = Build(0, by_other->collective, 0, false);
  EXPECT_EQ(other.bytes.size(), wire::kOverheadBytes);
  EXPECT_EQ(other.view.header.words, 32);
  EXPECT_EQ(other.view.header.flags, MLNET_F_NO_PAYLOAD | MLNET_F_NO_DATA);
  EXPECT_EQ(other.view.trailer.weight, 0);

  const Built retry = Build(0, by_other->collective, 0, true);  // rule 4: full length
  EXPECT_EQ(retry.bytes.size(), owner.bytes.size());
  EXPECT_EQ(retry.view.header.flags, MLNET_F_NO_DATA | MLNET_F_RETRY);
  EXPECT_EQ(retry.view.trailer.weight, 0);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(retry.Word(i), 0u);
}

TEST(Packetize, a_barrier_is_a_header_that_counts) {
  const Built packet = Build(1, Make(1, {}, 9)->collective, 0, false);
  EXPECT_EQ(packet.bytes.size(), wire::kOverheadBytes);
  EXPECT_EQ(packet.view.header.words, 0);
  EXPECT_EQ(packet.view.header.flags, 0);
  EXPECT_EQ(packet.view.trailer.weight, 1);
}

}  // namespace
}  // namespace mlnet::worker
