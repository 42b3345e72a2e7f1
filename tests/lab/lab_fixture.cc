// SPDX-License-Identifier: Apache-2.0
#include "lab_fixture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>

namespace mlnet::lab_test {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr size_t kSegments = 44;  // 64 KiB
constexpr uint32_t kGroup = 64;   // well below a veth ring of 256 frames

std::string ReadFd(int fd) {
  std::string text;
  char buffer[4096];
  lseek(fd, 0, SEEK_SET);
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  return text;
}

}  // namespace

Output RunProgram(const std::vector<std::string>& argv) {
  const int out = memfd_create("out", MFD_CLOEXEC), err = memfd_create("err", MFD_CLOEXEC);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out, 1);
    dup2(err, 2);
    std::vector<char*> args;
    for (const auto& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
    args.push_back(nullptr);
    execvp(args[0], args.data());
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  Output result{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ReadFd(out), ReadFd(err)};
  close(out);
  close(err);
  return result;
}

fs::path LabProgram() {
  return fs::read_symlink("/proc/self/exe").parent_path().parent_path().parent_path() / "bin" / "mlnet-lab";
}

Output RunLab(std::vector<std::string> args) {
  args.insert(args.begin(), LabProgram());
  return RunProgram(args);
}

bool WaitFor(const std::function<bool()>& condition, std::chrono::seconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  while (!condition()) {
    if (steady_clock::now() > deadline) return false;
    poll(nullptr, 0, 1);
  }
  return true;
}

std::string FreshName() {
  static int counter = 0;
  return "t" + std::to_string(getpid()) + "_" + std::to_string(++counter);
}

TextFile::TextFile(const std::string& text) : path_(testing::TempDir() + FreshName()) {
  std::ofstream(path_) << text;
}

Lab::Lab(std::vector<std::string> up_args) : name_(FreshName()) {
  up_args.insert(up_args.begin(), {"-j", "--name", name_, "up"});
  const Output up = RunLab(up_args);
  EXPECT_EQ(up.exit_code, 0) << up.err;
  status_ = Json::parse(up.out, nullptr, false);
}

Lab::~Lab() {
  if (testing::Test::HasFailure()) PrintDaemonLogs();
  const Output down = RunLab({"--name", name_, "down"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
}

// With its last words: a daemon that ended says nothing else of why.
void Lab::PrintDaemonLogs() const {
  if (!status_.is_object()) return;
  const Json hosts = status_.value("hosts", Json::array());
  for (const Json& host : hosts) {
    const std::string log = host.value("log", "");
    if (log.empty()) continue;
    std::ifstream in(log);
    std::cerr << "== " << log << "\n" << in.rdbuf() << "\n";
  }
}

Json Lab::HostStatus(const std::string& host) const {
  for (const auto& h : status_["hosts"]) {
    if (h["name"] == host) return h;
  }
  ADD_FAILURE() << "no host " << host << " in " << status_.dump();
  return {};
}

Output Lab::Exec(const std::string& host, const std::vector<std::string>& command) const {
  std::vector<std::string> args = {"--name", name_, "exec", host, "--"};
  args.insert(args.end(), command.begin(), command.end());
  return RunLab(args);
}

Json Lab::Fault(std::vector<std::string> args) const {
  args.insert(args.begin(), {"-j", "--name", name_, "fault"});
  const Output fault = RunLab(args);
  EXPECT_EQ(fault.exit_code, 0) << fault.err;
  return Json::parse(fault.out, nullptr, false);
}

Json Lab::Link(const std::string& host, const std::string& direction) const {
  return Fault({"show", host})["hosts"][0][direction];
}

void Lab::FixNeighbours() const {
  for (const auto& host : status_["hosts"]) {
    std::string script;
    for (const auto& other : status_["hosts"]) {
      script += "ip neigh replace " + other["address"].get<std::string>() + " lladdr " +
                other["mac"].get<std::string>() + " dev eth0 nud permanent\n";
    }
    const Output done = Exec(host["name"], {"sh", "-ec", script});
    ASSERT_EQ(done.exit_code, 0) << done.err;
  }
}

std::thread ThreadIn(const std::string& netns, std::function<void()> body) {
  return std::thread([netns, body = std::move(body)] {
    const int fd = open(netns.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(setns(fd, CLONE_NEWNET), 0) << netns << ": " << strerror(errno);
    close(fd);
    body();
  });
}

void RunIn(const std::string& netns, std::function<void()> body) { ThreadIn(netns, std::move(body)).join(); }

std::vector<uint8_t> Payload(uint32_t index) {
  std::vector<uint8_t> bytes(kPayloadBytes);
  std::memcpy(bytes.data(), &index, sizeof index);
  for (size_t i = sizeof index; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(index * 31 + i * 7);
  return bytes;
}

int UdpSocket() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int bytes = 64 << 20;
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes), 0);
  return fd;
}

void Connect(int fd, const std::string& address, uint16_t port) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  inet_pton(AF_INET, address.c_str(), &to.sin_addr);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
}

Receiver::Receiver(const std::string& netns, uint16_t port) {
  RunIn(netns, [&] {
    fd_ = UdpSocket();
    const int on = 1;
    setsockopt(fd_, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_port = htons(port);
    ASSERT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
  });
  thread_ = std::thread([this] {
    std::vector<uint8_t> buffer(4096);
    std::array<char, 128> control;
    for (;;) {
      pollfd wait{fd_, POLLIN, 0};
      // Stopped means: nothing more is on its way, so an empty queue is the end.
      if (poll(&wait, 1, 10) == 0) {
        if (stop_) return;
        continue;
      }
      iovec part{buffer.data(), buffer.size()};
      msghdr message = {};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      const ssize_t n = recvmsg(fd_, &message, MSG_DONTWAIT);
      if (n < 0) continue;
      Arrival arrival = {};
      std::memcpy(&arrival.index, buffer.data(), sizeof arrival.index);
      arrival.is_intact = std::vector<uint8_t>(buffer.begin(), buffer.begin() + n) == Payload(arrival.index);
      for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        timespec ts;
        std::memcpy(&ts, CMSG_DATA(c), sizeof ts);
        arrival.kernel_ns =
            static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000ULL + static_cast<uint64_t>(ts.tv_nsec);
      }
      arrivals_.push_back(arrival);
      ++count_;
    }
  });
}

const std::vector<Arrival>& Receiver::Stop() {
  stop_ = true;
  if (thread_.joinable()) {
    thread_.join();
    close(fd_);
  }
  return arrivals_;
}

Flooded Flood(const std::string& netns, const std::string& address, uint16_t port,
              std::chrono::milliseconds duration) {
  Flooded flooded;
  RunIn(netns, [&] {
    const int fd = UdpSocket();
    Connect(fd, address, port);
    // Segmentation offload: the cheapest way to more packets than the link takes, on a busy machine too.
    const int segment = kPayloadBytes;
    EXPECT_EQ(setsockopt(fd, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment), 0);
    const auto payload = Payload(0);
    std::vector<uint8_t> batch;
    for (size_t i = 0; i < kSegments; ++i) batch.insert(batch.end(), payload.begin(), payload.end());
    for (const auto end = steady_clock::now() + duration; steady_clock::now() < end;) {
      if (send(fd, batch.data(), batch.size(), MSG_DONTWAIT) > 0) {
        flooded.packets += kSegments;
        continue;
      }
      flooded.was_slowed = true;
      pollfd wait{fd, POLLOUT, 0};
      poll(&wait, 1, 10);
    }
    close(fd);
  });
  return flooded;
}

void SendPaced(const std::string& netns, const std::string& address, uint16_t port, uint32_t count,
               const std::function<uint64_t()>& passed) {
  RunIn(netns, [&] {
    const int fd = UdpSocket();
    Connect(fd, address, port);
    for (uint32_t i = 0; i < count; ++i) {
      const auto payload = Payload(i);
      ASSERT_EQ(send(fd, payload.data(), payload.size(), 0), static_cast<ssize_t>(payload.size()));
      if ((i + 1) % kGroup == 0 || i + 1 == count) {
        ASSERT_TRUE(WaitFor([&] { return passed() >= i + 1; }))
            << "only " << passed() << " of " << i + 1 << " frames passed";
      }
    }
    close(fd);
  });
}

}  // namespace mlnet::lab_test
