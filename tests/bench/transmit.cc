// SPDX-License-Identifier: Apache-2.0
// What sending costs: the same datagrams by UDP segmentation offload, as libmlnet sends, and by an AF_XDP socket in copy mode, which
// is what veth has; over a veth pair whose far end drops each packet in native XDP. Needs root; stays in a namespace of its own.
#include <benchmark/benchmark.h>
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xdp/xsk.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "transport/udp_transport.h"

namespace mlnet::bench {
namespace {

constexpr size_t kHeaders = sizeof(ethhdr) + sizeof(iphdr) + sizeof(udphdr);
constexpr uint16_t kPort = MLNET_UDP_PORT;

size_t BatchOf(size_t bytes) { return std::min(worker::kBatchPacketsMax, worker::kBatchBytesMax / bytes); }

void Check(bool is_ok, const char* what) {
  if (is_ok) return;
  std::fprintf(stderr, "bench_transmit: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

/// A namespace with a veth pair, v0 to v1, whose v1 drops all in native XDP.
class Link {
 public:
  static Link& Get() {
    static Link link;
    return link;
  }
  /// Frames that v1 has had.
  static uint64_t Received() {
    uint64_t packets = 0;
    std::ifstream("/sys/class/net/v1/statistics/rx_packets") >> packets;
    return packets;
  }

 private:
  Link() {
    Check(::unshare(CLONE_NEWNET | CLONE_NEWNS) == 0, "a namespace (needs root)");
    Check(std::system("mount --make-rprivate / && mount -t sysfs sysfs /sys &&"
                      " ip link add v0 mtu 3498 address 02:00:00:00:00:01 type veth peer name v1 mtu 3498 address 02:00:00:00:00:02 &&"
                      " ip address add 10.9.0.1/24 dev v0 && ip link set v0 up && ip link set v1 up &&"
                      " ip neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0 nud permanent") == 0, "a veth pair (ip)");
    const std::array<bpf_insn, 2> drop{bpf_insn{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, XDP_DROP}, bpf_insn{BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
    const int program = bpf_prog_load(BPF_PROG_TYPE_XDP, "drop", "GPL", drop.data(), drop.size(), nullptr);
    Check(program >= 0, "an XDP program");
    Check(bpf_xdp_attach(static_cast<int>(::if_nametoindex("v1")), program, XDP_FLAGS_DRV_MODE, nullptr) == 0, "native XDP on v1");
  }
};

/// What libmlnet sends with.
class Udp {
 public:
  explicit Udp(size_t bytes) : bytes_(bytes), batch_(BatchOf(bytes)), data_(batch_ * bytes) {
    worker::EngineConfig config;
    config.trees[0].pools[0].is_open = true;
    auto opened = worker::UdpTransport::Open({{"10.9.0.1", "10.9.0.2", kPort}}, config, worker::Inbox{});
    if (!opened) Check(false, opened.error().message.c_str());
    transport_ = std::move(*opened);
  }
  size_t batch() const { return batch_; }

  void Send(uint64_t value) {
    for (size_t i = 0; i < batch_; ++i) std::memcpy(&data_[i * bytes_], &value, sizeof(value));
    Check(transport_->Send(0, data_, bytes_).has_value(), "Send");
  }

 private:
  const size_t bytes_, batch_;
  std::vector<std::byte> data_;
  std::unique_ptr<worker::UdpTransport> transport_;
};

/// The same by AF_XDP: frames are filled where the kernel copies them from.
class Xsk {
 public:
  explicit Xsk(size_t bytes) : bytes_(bytes), batch_(BatchOf(bytes)) {
    const size_t size = kFrames * kFrameBytes;
    area_ = static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    Check(area_ != MAP_FAILED, "memory");
    xsk_umem_config frames{};
    frames.fill_size = frames.comp_size = kFrames;
    frames.frame_size = kFrameBytes;
    xsk_socket_config config{};
    config.rx_size = config.tx_size = kFrames;
    config.libbpf_flags = XSK_LIBBPF_FLAGS__INHIBIT_PROG_LOAD;
    config.bind_flags = XDP_COPY;
    // The queue is free a grace period after the socket before this one is gone.
    int error = -EBUSY;
    for (int attempt = 0; error == -EBUSY && attempt < 100; ++attempt) {
      Check(xsk_umem__create(&umem_, area_, size, &fill_, &completion_, &frames) == 0, "xsk_umem__create");
      error = xsk_socket__create(&socket_, "v0", 0, umem_, nullptr, &tx_, &config);
      if (error == 0) break;
      xsk_umem__delete(umem_);
      ::poll(nullptr, 0, 10);
    }
    errno = -error;
    Check(error == 0, "xsk_socket__create");
    for (size_t i = 0; i < kFrames; ++i) Head(area_ + i * kFrameBytes);
  }
  ~Xsk() {
    xsk_socket__delete(socket_);
    xsk_umem__delete(umem_);
    ::munmap(area_, kFrames * kFrameBytes);
  }
  size_t batch() const { return batch_; }

  void Send(uint64_t value) {
    uint32_t at = 0;
    const auto count = static_cast<uint32_t>(batch_);
    while (xsk_ring_prod__reserve(&tx_, count, &at) != count) Reap();
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t frame = next_++ % kFrames * kFrameBytes;
      std::memcpy(area_ + frame + kHeaders, &value, sizeof(value));
      xdp_desc* desc = xsk_ring_prod__tx_desc(&tx_, at + i);
      desc->addr = frame;
      desc->len = static_cast<uint32_t>(kHeaders + bytes_);
      desc->options = 0;
    }
    xsk_ring_prod__submit(&tx_, count);
    under_way_ += count;
    // One call sends at most 32 frames.
    while (under_way_ > 0) {
      if (::sendto(xsk_socket__fd(socket_), nullptr, 0, MSG_DONTWAIT, nullptr, 0) < 0) Check(errno == EAGAIN || errno == EBUSY, "sendto");
      Reap();
    }
  }

 private:
  static constexpr size_t kFrames = 256, kFrameBytes = 4096;

  void Reap() {
    uint32_t at = 0;
    const uint32_t done = xsk_ring_cons__peek(&completion_, kFrames, &at);
    xsk_ring_cons__release(&completion_, done);
    under_way_ -= done;
  }
  void Head(std::byte* frame) const {
    ethhdr eth{{2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 1}, htons(ETH_P_IP)};
    iphdr ip{};
    ip.version = 4;
    ip.ihl = 5;
    ip.ttl = 64;
    ip.protocol = IPPROTO_UDP;
    ip.tot_len = htons(static_cast<uint16_t>(kHeaders - sizeof(ethhdr) + bytes_));
    ::inet_pton(AF_INET, "10.9.0.1", &ip.saddr);
    ::inet_pton(AF_INET, "10.9.0.2", &ip.daddr);
    udphdr udp{};
    udp.source = udp.dest = htons(kPort);
    udp.len = htons(static_cast<uint16_t>(sizeof(udphdr) + bytes_));
    std::memcpy(frame, &eth, sizeof(eth));
    std::memcpy(frame + sizeof(eth), &ip, sizeof(ip));
    std::memcpy(frame + sizeof(eth) + sizeof(ip), &udp, sizeof(udp));
  }

  const size_t bytes_, batch_;
  std::byte* area_ = nullptr;
  xsk_umem* umem_ = nullptr;
  xsk_socket* socket_ = nullptr;
  xsk_ring_prod fill_{}, tx_{};
  xsk_ring_cons completion_{};
  uint64_t next_ = 0, under_way_ = 0;
};

template <typename Sender>
void Transmit(benchmark::State& state) {
  Link::Get();
  const auto bytes = static_cast<size_t>(state.range(0));
  Sender sender(bytes);
  const uint64_t before = Link::Received();
  uint64_t batches = 0;
  for (auto _ : state) sender.Send(batches++);
  const auto sent = static_cast<double>(batches * sender.batch());
  const auto received = static_cast<double>(Link::Received() - before);
  if (received < 0.99 * sent) state.SkipWithError("packets did not arrive");
  state.counters["packet"] = benchmark::Counter(sent, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["Gbps"] = benchmark::Counter(sent * static_cast<double>(bytes) * 8e-9, benchmark::Counter::kIsRate);
}

BENCHMARK(Transmit<Udp>)->Name("UdpGso")->ArgName("bytes")->Arg(1472)->Arg(2880);
BENCHMARK(Transmit<Xsk>)->Name("AfXdpCopy")->ArgName("bytes")->Arg(1472)->Arg(2880);

}  // namespace
}  // namespace mlnet::bench
