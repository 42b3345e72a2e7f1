// SPDX-License-Identifier: Apache-2.0
// The format as user space writes it, against the frames that the harness builds by definition, and
// against the worked example of WIRE_FORMAT.md.
#include <fstream>
#include <sstream>

#include "bpf/fixture.h"
#include "wire/packet.h"

namespace mlnet::test {
namespace {

std::span<const std::byte> UdpPayload(const Bytes& frame) {
  return std::as_bytes(std::span(frame)).subspan(42);
}

mlnet_hdr HeaderOf(const Frame& f) {
  mlnet_hdr h{};
  h.version_type = wire::VersionType(f.type);
  h.op_wire = wire::OpWire(f.op, f.wire);
  h.job = f.job;
  h.epoch = f.epoch;
  h.tree = f.tree;
  h.class_stream = f.class_stream;
  h.child = f.child;
  h.flags = f.flags;
  h.words = f.nominal_words;
  h.fingerprint = f.fingerprint;
  wire::SetSeq(h, f.seq);
  return h;
}

mlnet_trailer TrailerOf(const Frame& f) {
  mlnet_trailer t{};
  t.bitmap = f.bitmap;
  t.weight = f.weight;
  std::copy(f.exps.begin(), f.exps.end(), t.exps);
  return t;
}

TEST(WireTest, sealed_packets_equal_the_bytes_of_the_definition) {
  for (uint8_t op : {MLNET_OP_ADD64, MLNET_OP_ADD32, MLNET_OP_MAX8}) {
    Frame f = Contribution(2, 0x123456789abcULL);
    f.op = op;
    f.exps.fill(0xa5);
    const Bytes frame = f.Build();
    std::vector<std::byte> out(wire::kPacketBytesMax);
    const mlnet_hdr h = HeaderOf(f);
    const mlnet_trailer t = TrailerOf(f);
    out.resize(wire::Seal(h, f.words, t, out));
    const auto expected = UdpPayload(frame);
    EXPECT_EQ(out, std::vector<std::byte>(expected.begin(), expected.end()));
    wire::View view;
    ASSERT_TRUE(wire::Parse(out, view));
    EXPECT_TRUE(wire::Verify(view));
    EXPECT_EQ(wire::Seq(view.header), 0x123456789abcULL);
    out[30] ^= std::byte{1};
    ASSERT_TRUE(wire::Parse(out, view));
    EXPECT_FALSE(wire::Verify(view));
  }
}

TEST(WireTest, lengths_that_contradict_the_header_do_not_parse) {
  const Bytes frame = Contribution(0, 0).Build();
  const auto whole = UdpPayload(frame);
  wire::View view;
  EXPECT_TRUE(wire::Parse(whole, view));
  EXPECT_FALSE(wire::Parse(whole.first(whole.size() - 1), view));
  EXPECT_FALSE(wire::Parse(whole.first(10), view));
}

// The example stands in WIRE_FORMAT.md as hex lines of the form "    0000  d6 4d ...".
Bytes ExampleBytes() {
  std::ifstream file(MLNET_SOURCE_DIR "/bpf/abi/mlnet/WIRE_FORMAT.md");
  EXPECT_TRUE(file) << "WIRE_FORMAT.md is missing";
  Bytes bytes;
  for (std::string line; std::getline(file, line);) {
    if (line.size() < 10 || line.compare(0, 4, "    ") != 0 || line.compare(8, 2, "  ") != 0) continue;
    if (line.find_first_not_of("0123456789abcdef", 4) != 8) continue;
    std::istringstream hex(line.substr(10));
    for (std::string byte; hex >> byte && byte.size() == 2;)
      bytes.push_back(static_cast<uint8_t>(std::stoul(byte, nullptr, 16)));
  }
  return bytes;
}

TEST(WireTest, worked_example_of_the_document_is_a_valid_packet_with_the_fields_it_names) {
  const Bytes bytes = ExampleBytes();
  ASSERT_EQ(bytes.size(), 42u + 22 + 128 + 42);
  const Parsed p = ParseFrame(bytes);
  EXPECT_TRUE(p.check_ok);
  EXPECT_TRUE(p.ip_checksum_ok);
  EXPECT_EQ(p.frame.type, MLNET_T_CONTRIB);
  EXPECT_EQ(p.frame.job, 3);
  EXPECT_EQ(p.frame.epoch, 1);
  EXPECT_EQ(p.frame.class_stream, 2);
  EXPECT_EQ(p.frame.child, 1);
  EXPECT_EQ(p.frame.seq, 0x10002u);
  EXPECT_EQ(p.frame.fingerprint, 0xc0ffee01u);
  EXPECT_EQ(p.frame.words[0], 0x2000000120000000ULL);
  EXPECT_EQ(p.frame.exps[0], 127);
  EXPECT_EQ(p.frame.exps[1], 135);
  wire::View view;
  ASSERT_TRUE(wire::Parse(UdpPayload(bytes), view));
  EXPECT_TRUE(wire::Verify(view));
}

}  // namespace
}  // namespace mlnet::test
