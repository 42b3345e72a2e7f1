// SPDX-License-Identifier: Apache-2.0
// A link's rate holds in both directions, for frames of the host's stack and for those sent by XDP_TX, which
// no qdisc of the host ever sees. Rates count Ethernet frame bytes (without FCS).
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>

#include "forwarder.h"
#include "lab_fixture.h"

namespace mlnet::lab_test {
namespace {

using std::chrono::milliseconds;

constexpr uint16_t kPort = 9000;
constexpr milliseconds kDuration{1200};

// Bits per second on the wire between the arrival of the first and the last packet, after the shaper's burst.
double MeasuredRate(const std::vector<Arrival>& arrivals) {
  constexpr size_t kBurstPackets = 256 * 1024 / kFrameBytes;  // the largest burst that the lab ever allows
  if (arrivals.size() < 2 * kBurstPackets) return 0;
  const auto& first = arrivals[kBurstPackets];
  const double seconds = static_cast<double>(arrivals.back().kernel_ns - first.kernel_ns) / 1e9;
  return static_cast<double>((arrivals.size() - 1 - kBurstPackets) * kFrameBytes * 8) / seconds;
}

struct Case {
  double rate_mbit;
  bool is_tx;   // the limited direction: of what w1 sends, or receives
  bool by_xdp;  // sent by XDP_TX
};

std::string CaseName(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::string(c.is_tx ? "tx_" : "rx_") + (c.by_xdp ? "xdp_tx_" : "udp_") +
         std::to_string(static_cast<int>(c.rate_mbit)) + "mbit";
}

class Rate : public testing::TestWithParam<Case> {};

// w1 has the limited link, w2 and a1 have not. Traffic: plain w1 <-> w2; by XDP_TX a1 -> {w1 or w2} -> the
// other.
TEST_P(Rate, holds_when_overdriven) {
  const Case c = GetParam();
  const TextFile topology(
      "hosts:\n  - {name: w1, rate: " + std::to_string(c.rate_mbit) +
      "mbit}\n  - {name: w2, rate: unlimited}\n  - {name: a1, role: aggregator, rate: unlimited}\n");
  const Lab lab({"--no-daemons", "--topology", topology.path()});
  lab.FixNeighbours();
  const std::string from = c.is_tx ? "w1" : "w2", to = c.is_tx ? "w2" : "w1";
  if (c.by_xdp && c.is_tx) {
    // w1 must receive faster than it may send.
    ASSERT_EQ(
        lab.Exec("switch", {"tc", "qdisc", "replace", "dev", "p-w1", "root", "bfifo", "limit", "4000000"})
            .exit_code,
        0);
  }
  std::unique_ptr<Forwarder> forwarder;
  if (c.by_xdp) forwarder = std::make_unique<Forwarder>(lab, from, to);
  Receiver receiver(lab.Netns(to), c.by_xdp ? kForwardPort : kPort);
  const Flooded sent = c.by_xdp ? Flood(lab.Netns("a1"), lab.Address(from), kForwardPort, kDuration)
                                : Flood(lab.Netns(from), lab.Address(to), kPort, kDuration);
  const double offered =
      static_cast<double>(sent.packets * kFrameBytes * 8) / (static_cast<double>(kDuration.count()) * 1e-3);
  const double rate = c.rate_mbit * 1e6;
  ASSERT_TRUE(sent.was_slowed || offered > 1.15 * rate)
      << offered << " b/s: the sender was too slow to overdrive the link";
  const double measured = MeasuredRate(receiver.Stop());
  RecordProperty("measured_bps", std::to_string(measured));
  EXPECT_LT(measured, rate * 1.03);
  EXPECT_GT(measured, rate * 0.90);
}

INSTANTIATE_TEST_SUITE_P(Links, Rate,
                         testing::Values(Case{100, true, false}, Case{100, false, false},
                                         Case{100, true, true}, Case{100, false, true}, Case{40, true, true},
                                         Case{40, false, true}),
                         CaseName);

// Segmentation offload hands the link 64 KiB at once: it must not be dropped for its size, nor pass as one
// frame.
TEST(RateOffload, tcp_super_packets_get_through_at_the_rate) {
  const Lab lab({"--no-daemons", "--workers", "2", "--aggregators", "0", "--rate", "200mbit"});
  const Output off = RunLab({"--name", lab.name(), "xdp", "off"});
  ASSERT_EQ(off.exit_code, 0) << off.err;
  const Output features = lab.Exec("w1", {"ethtool", "-k", "eth0"});
  EXPECT_THAT(features.out, testing::HasSubstr("tcp-segmentation-offload: on"));
  constexpr size_t kBytes = 24 << 20;
  int listener = -1;
  RunIn(lab.Netns("w2"), [&] {
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_port = htons(kPort);
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
    ASSERT_EQ(listen(listener, 1), 0);
  });
  // Before the first byte can be on its way: one that waits for this thread would have taken no time.
  const auto start = std::chrono::steady_clock::now();
  std::thread sender = ThreadIn(lab.Netns("w1"), [&] {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    Connect(fd, lab.Address("w2"), kPort);
    const std::vector<char> block(1 << 20);
    for (size_t sent = 0; sent < kBytes; sent += block.size()) {
      ASSERT_EQ(send(fd, block.data(), block.size(), MSG_WAITALL), static_cast<ssize_t>(block.size()));
    }
    close(fd);
  });
  const int fd = accept(listener, nullptr, nullptr);
  std::vector<char> buffer(1 << 20);
  size_t received = 0;
  for (ssize_t n; (n = read(fd, buffer.data(), buffer.size())) > 0;) received += static_cast<size_t>(n);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  sender.join();
  close(fd);
  close(listener);
  ASSERT_EQ(received, kBytes);
  // 1448 payload bytes ride in a frame of 1514; the burst is at most 256 KiB per shaper.
  const double measured = static_cast<double>(received - (512 << 10)) * 8 * 1514 / 1448 / seconds.count();
  EXPECT_LT(measured, 200e6 * 1.03);
  EXPECT_GT(measured, 200e6 * 0.60);
}

}  // namespace
}  // namespace mlnet::lab_test
