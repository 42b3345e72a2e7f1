// SPDX-License-Identifier: Apache-2.0
#include "delay_line.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>

#include "base/clock.h"
#include "base/errno_error.h"
#include "base/read_file.h"
#include "fault/fault.h"
#include "netns.h"
#include "ports.h"
#include "process.h"

namespace mlnet::lab {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFrameBytesMax = 9000 + 18;
constexpr size_t kQueueFrames = 4096;  // of the TAP, towards this process
constexpr int kReadBatch = 64;
constexpr std::chrono::milliseconds kStartTimeout{5000};

fs::path Pidfile(const Paths& paths) { return paths.Dir() / "delay-line.pid"; }
fs::path ReadyFile(const Paths& paths) { return paths.Dir() / "delay-line.ready"; }

struct HeldFrame {
  uint64_t due_ns;
  std::vector<char> bytes;
};

// One direction of one link: frames leave in the order they came.
struct Lane {
  Fd tap;
  const volatile lab_link* link = nullptr;  // the live configuration
  std::deque<HeldFrame> held;
};

Result<Fd> OpenTap(uint32_t key) {
  Fd fd(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!fd)
    return tl::make_unexpected(ErrnoError("open /dev/net/tun", errno, "delay and reorder need CONFIG_TUN"));
  unsigned index = LAB_TAP_IFINDEX + key;
  ifreq request = {};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  snprintf(request.ifr_name, sizeof request.ifr_name, "d-%u", key);
  if (ioctl(fd.get(), TUNSETIFINDEX, &index) != 0 || ioctl(fd.get(), TUNSETIFF, &request) != 0) {
    return tl::make_unexpected(ErrnoError(fmt::format("create TAP {}", request.ifr_name), errno));
  }
  const Fd control(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  request.ifr_qlen = kQueueFrames;
  bool ok = ioctl(control.get(), SIOCSIFTXQLEN, &request) == 0;
  request.ifr_mtu = kFrameBytesMax - 18;
  ok = ok && ioctl(control.get(), SIOCSIFMTU, &request) == 0;
  request.ifr_flags = IFF_UP;
  ok = ok && ioctl(control.get(), SIOCSIFFLAGS, &request) == 0;
  if (!ok) return tl::make_unexpected(ErrnoError(fmt::format("set up TAP {}", request.ifr_name), errno));
  return fd;
}

Result<void> AttachRelease(uint32_t key, int program) {
  LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = static_cast<int>(LAB_TAP_IFINDEX + key),
              .attach_point = BPF_TC_INGRESS);
  LIBBPF_OPTS(bpf_tc_opts, options, .prog_fd = program);
  int err = bpf_tc_hook_create(&hook);
  if (err == 0) err = bpf_tc_attach(&hook, &options);
  if (err != 0) return tl::make_unexpected(ErrnoError(fmt::format("attach to TAP {}", key), -err));
  return {};
}

Result<std::vector<Lane>> OpenLanes(const Paths& paths, size_t num_links) {
  SilenceLibbpf();
  const Fd links(bpf_obj_get((paths.FaultPins() / "lab_links").c_str()));
  const Fd release(bpf_obj_get((paths.FaultPins() / "lab_release").c_str()));
  if (!links || !release)
    return tl::make_unexpected(ErrnoError("open the pins in " + paths.FaultPins().string(), errno));
  void* shared = mmap(nullptr, sizeof(lab_link) * 2 * LAB_LINKS_MAX, PROT_READ, MAP_SHARED, links.get(), 0);
  if (shared == MAP_FAILED) return tl::make_unexpected(ErrnoError("map lab_links", errno));
  std::vector<Lane> lanes(2 * num_links);
  for (uint32_t key = 0; key < lanes.size(); ++key) {
    auto tap = OpenTap(key);
    if (!tap) return tl::make_unexpected(tap.error());
    if (auto r = AttachRelease(key, release.get()); !r) return tl::make_unexpected(r.error());
    lanes[key].tap = std::move(*tap);
    lanes[key].link = static_cast<const volatile lab_link*>(shared) + key;
  }
  return lanes;
}

void TakeIn(Lane& lane, Clock& clock) {
  char buffer[kFrameBytesMax];
  for (int i = 0; i < kReadBatch; ++i) {
    const ssize_t n = read(lane.tap.get(), buffer, sizeof buffer);
    if (n <= 0) return;
    lane.held.push_back({clock.NowNs() + lane.link->hold_us * 1000ULL, {buffer, buffer + n}});
  }
}

// Gives back what is due; the time at which the next frame will be.
uint64_t GiveBack(std::vector<Lane>& lanes, Clock& clock) {
  uint64_t next = UINT64_MAX;
  for (Lane& lane : lanes) {
    while (!lane.held.empty() && lane.held.front().due_ns <= clock.NowNs()) {
      const auto& bytes = lane.held.front().bytes;
      // A full backlog loses the frame, as a full queue of a link would.
      if (write(lane.tap.get(), bytes.data(), bytes.size()) < 0 && errno == EINTR) continue;
      lane.held.pop_front();
    }
    if (!lane.held.empty()) next = std::min(next, lane.held.front().due_ns);
  }
  return next;
}

int WaitUntil(int epoll, epoll_event* events, int max, uint64_t due_ns, Clock& clock) {
  if (due_ns == UINT64_MAX) return epoll_wait(epoll, events, max, -1);
  const uint64_t now = clock.NowNs();
  const uint64_t left = due_ns > now ? due_ns - now : 0;
  const timespec timeout{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
  return static_cast<int>(syscall(SYS_epoll_pwait2, epoll, events, max, &timeout, nullptr, 0));
}

}  // namespace

Result<void> RunDelayLine(const Paths& paths, size_t num_links) {
  auto lanes = OpenLanes(paths, num_links);
  if (!lanes) return tl::make_unexpected(lanes.error());
  const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  for (size_t i = 0; i < lanes->size(); ++i) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = i;
    epoll_ctl(epoll.get(), EPOLL_CTL_ADD, (*lanes)[i].tap.get(), &event);
  }
  std::ofstream(ReadyFile(paths)) << getpid() << '\n';
  MonotonicClock clock;
  std::vector<epoll_event> events(lanes->size());
  for (;;) {
    const uint64_t next = GiveBack(*lanes, clock);
    const int n = WaitUntil(epoll.get(), events.data(), static_cast<int>(events.size()), next, clock);
    if (n < 0 && errno != EINTR) return tl::make_unexpected(ErrnoError("epoll", errno));
    for (int i = 0; i < n; ++i) TakeIn((*lanes)[events[static_cast<size_t>(i)].data.u64], clock);
  }
}

Result<void> StartDelayLine(const Paths& paths) {
  if (ReadPidfile(Pidfile(paths))) return {};
  std::error_code ec;
  fs::remove(ReadyFile(paths), ec);
  const fs::path log = paths.Dir() / "delay-line.log";
  const auto id =
      StartDaemon({fs::read_symlink("/proc/self/exe", ec).string(), "--name", paths.lab, "delay-line"},
                  paths.NetnsFile(Paths::kSwitch), log, Pidfile(paths));
  if (!id) return tl::make_unexpected(id.error());
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, id->pid, 0)));
  const auto deadline = std::chrono::steady_clock::now() + kStartTimeout;
  while (!fs::exists(ReadyFile(paths), ec)) {
    pollfd wait{process.get(), POLLIN, 0};
    const bool ended = poll(&wait, 1, 5) > 0;
    if (!ended && std::chrono::steady_clock::now() < deadline) continue;
    return Err(ErrorCode::kSystem, fmt::format("the delay line did not start: {}", ReadFile(log).value_or("")));
  }
  return {};
}

void StopDelayLine(const Paths& paths) {
  const auto id = ReadPidfile(Pidfile(paths));
  if (!id) return;
  EndProcesses({*id}, std::chrono::milliseconds{1000});
  std::error_code ec;
  fs::remove(Pidfile(paths), ec);
}

}  // namespace mlnet::lab
