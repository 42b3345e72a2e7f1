// SPDX-License-Identifier: Apache-2.0
// What sending costs: the same datagrams by UDP segmentation offload, as libmlnet sends, and by an AF_XDP socket in copy mode, which
// is what veth and virtio_net of most kernels have; over a veth pair whose far end drops each packet in native XDP, in a namespace of
// its own. Or over a given device, whose link has someone else at its end: MLNET_BENCH_LINK="DEVICE ADDRESS PEER PEER'S_MAC". Needs root.
#include <benchmark/benchmark.h>
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <net/if.h>
#include <netinet/ether.h>
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
#include <sstream>
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

/// Asks each millisecond, asleep between: what a sender does whose link is slower than it.
template <typename Done>
void WaitUntil(const char* what, Done done) {
  for (int left = 10'000; !done(); --left) {
    errno = ETIMEDOUT;
    Check(left > 0, what);
    ::poll(nullptr, 0, 1);
  }
}

/// The link under test: a namespace with a veth pair, v0 to v1, whose v1 drops all in native XDP; or what MLNET_BENCH_LINK names.
struct Link {
  std::string device = "v0", address = "10.9.0.1", peer = "10.9.0.2", peer_mac = "02:00:00:00:00:02";
  std::string counter = "v1/statistics/rx_packets";
  uint64_t late = 0;  // packets that the counter may not have seen yet

  static const Link& Get() {
    static const Link link;
    return link;
  }
  /// Of all packets sent so far, those that have left.
  uint64_t Sent() const { return Read<uint64_t>(counter); }
  size_t Mtu() const { return Read<size_t>(device + "/mtu"); }
  ether_addr Mac() const { return *::ether_aton(Read<std::string>(device + "/address").c_str()); }

 private:
  template <typename Value>
  static Value Read(const std::string& file) {
    Value value{};
    Check((std::ifstream("/sys/class/net/" + file) >> value).good(), file.c_str());
    return value;
  }
  Link() {
    if (const char* given = std::getenv("MLNET_BENCH_LINK")) UseGiven(given);
    else MakePair();
  }
  void UseGiven(const char* given) {
    errno = EINVAL;
    Check(!(std::istringstream(given) >> device >> address >> peer >> peer_mac).fail() && ::ether_aton(peer_mac.c_str()) != nullptr,
          "MLNET_BENCH_LINK is \"DEVICE ADDRESS PEER PEER'S_MAC\"");
    counter = device + "/statistics/tx_packets";
    late = 1024;  // virtio_net counts a packet when its ring's entry is used again
  }
  void MakePair() const {
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
    auto opened = worker::UdpTransport::Open({{Link::Get().address, Link::Get().peer, kPort}}, config, worker::Inbox{});
    if (!opened) Check(false, opened.error().message.c_str());
    transport_ = std::move(*opened);
  }
  size_t batch() const { return batch_; }

  void Send(uint64_t value) {
    for (size_t i = 0; i < batch_; ++i) std::memcpy(&data_[i * bytes_], &value, sizeof(value));
    // A link slower than the sender: what libmlnet would count as lost, and send again, is here sent until it has left.
    WaitUntil("Send", [&] { return transport_->Send(0, data_, bytes_).has_value(); });
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
    WaitUntil("xsk_socket__create", [&] {
      Check(xsk_umem__create(&umem_, area_, size, &fill_, &completion_, &frames) == 0, "xsk_umem__create");
      const int error = xsk_socket__create(&socket_, Link::Get().device.c_str(), 0, umem_, nullptr, &tx_, &config);
      if (error != 0) xsk_umem__delete(umem_);
      errno = -error;
      Check(error == 0 || error == -EBUSY, "xsk_socket__create");
      return error == 0;
    });
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
    // A frame is the sender's again when the device has let go of it.
    WaitUntil("frames that are free", [&] {
      Reap();
      return under_way_ + count <= kFrames;
    });
    Check(xsk_ring_prod__reserve(&tx_, count, &at) == count, "xsk_ring_prod__reserve");
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
    WaitUntil("sendto", [&] {
      // One call sends at most 32 frames; a full queue of the device takes none.
      while (xsk_prod_nb_free(&tx_, kFrames) < kFrames) {
        if (::sendto(xsk_socket__fd(socket_), nullptr, 0, MSG_DONTWAIT, nullptr, 0) >= 0 || errno == EAGAIN) continue;
        Check(errno == EBUSY || errno == ENOBUFS, "sendto");
        return false;
      }
      return true;
    });
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
    const Link& link = Link::Get();
    ethhdr eth{};
    const ether_addr source = link.Mac(), dest = *::ether_aton(link.peer_mac.c_str());
    std::memcpy(eth.h_source, &source, sizeof(source));
    std::memcpy(eth.h_dest, &dest, sizeof(dest));
    eth.h_proto = htons(ETH_P_IP);
    iphdr ip{};
    ip.version = 4;
    ip.ihl = 5;
    ip.ttl = 64;
    ip.protocol = IPPROTO_UDP;
    ip.tot_len = htons(static_cast<uint16_t>(kHeaders - sizeof(ethhdr) + bytes_));
    ::inet_pton(AF_INET, link.address.c_str(), &ip.saddr);
    ::inet_pton(AF_INET, link.peer.c_str(), &ip.daddr);
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
  const Link& link = Link::Get();
  const auto bytes = static_cast<size_t>(state.range(0));
  if (bytes + kHeaders - sizeof(ethhdr) > link.Mtu()) return state.SkipWithError("more than the link's MTU");
  Sender sender(bytes);
  const uint64_t before = link.Sent();
  uint64_t batches = 0;
  for (auto _ : state) sender.Send(batches++);
  const auto sent = static_cast<double>(batches * sender.batch());
  if (static_cast<double>(link.Sent() - before + link.late) < 0.99 * sent) state.SkipWithError("packets have not left");
  state.counters["packet"] = benchmark::Counter(sent, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["Gbps"] = benchmark::Counter(sent * static_cast<double>(bytes) * 8e-9, benchmark::Counter::kIsRate);
}

BENCHMARK(Transmit<Udp>)->Name("UdpGso")->ArgName("bytes")->Arg(1472)->Arg(2880);
BENCHMARK(Transmit<Xsk>)->Name("AfXdpCopy")->ArgName("bytes")->Arg(1472)->Arg(2880);

}  // namespace
}  // namespace mlnet::bench
