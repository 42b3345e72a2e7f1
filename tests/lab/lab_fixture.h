// SPDX-License-Identifier: Apache-2.0
// What the lab's tests share: the mlnet-lab program as a subprocess, labs that remove themselves, and UDP
// traffic between two namespaces. Nothing here uses the lab's own code, so that both can be wrong only
// separately.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace mlnet::lab_test {

using Json = nlohmann::json;

struct Output {
  int exit_code = -1;
  std::string out;
  std::string err;
};

/// Runs argv to its end.
Output RunProgram(const std::vector<std::string>& argv);

/// bin/mlnet-lab of the build folder this test is in.
std::filesystem::path LabProgram();
Output RunLab(std::vector<std::string> args);

/// Polls `condition` until it holds; false after `timeout`.
bool WaitFor(const std::function<bool()>& condition, std::chrono::seconds timeout = std::chrono::seconds(10));

/// A lab name of this process that no other test uses.
std::string FreshName();

/// A file with this text, removed with the object.
class TextFile {
 public:
  explicit TextFile(const std::string& text);
  ~TextFile() { std::filesystem::remove(path_); }
  TextFile(const TextFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// `up` in the constructor, `down` in the destructor.
class Lab {
 public:
  explicit Lab(std::vector<std::string> up_args);
  ~Lab();
  Lab(const Lab&) = delete;

  const std::string& name() const { return name_; }
  const Json& status() const { return status_; }
  std::string Netns(const std::string& host) const { return "/run/netns/ml-" + name_ + "-" + host; }
  Json HostStatus(const std::string& host) const;
  std::string Address(const std::string& host) const { return HostStatus(host)["address"]; }
  Output Exec(const std::string& host, const std::vector<std::string>& command) const;
  /// `fault ARGS...`, which must succeed; its JSON.
  Json Fault(std::vector<std::string> args) const;
  /// The entry of one host and direction in `fault show`.
  Json Link(const std::string& host, const std::string& direction) const;
  /// Permanent neighbour entries everywhere, so that no ARP frame is on the links.
  void FixNeighbours() const;

 private:
  void PrintDaemonLogs() const;

  std::string name_;
  Json status_;
};

/// Runs `body` in a thread of its own inside namespace file `netns`.
std::thread ThreadIn(const std::string& netns, std::function<void()> body);
/// As ThreadIn, and waits for its end.
void RunIn(const std::string& netns, std::function<void()> body);

/// The payload of test packet `index`: the index, then bytes that depend on it.
constexpr size_t kPayloadBytes = 1472;
constexpr size_t kFrameBytes = kPayloadBytes + 42;
std::vector<uint8_t> Payload(uint32_t index);

int UdpSocket();
void Connect(int fd, const std::string& address, uint16_t port);

struct Arrival {
  uint32_t index;
  uint64_t kernel_ns;  // CLOCK_REALTIME, taken by the kernel
  bool is_intact;
};

/// Receives test packets on a UDP port inside a namespace until stopped.
class Receiver {
 public:
  Receiver(const std::string& netns, uint16_t port);
  ~Receiver() { Stop(); }
  size_t count() const { return count_; }
  /// Takes in what has arrived so far and ends.
  const std::vector<Arrival>& Stop();

 private:
  int fd_ = -1;
  std::atomic<bool> stop_ = false;
  std::atomic<size_t> count_ = 0;
  std::vector<Arrival> arrivals_;
  std::thread thread_;
};

struct Flooded {
  uint64_t packets = 0;
  bool was_slowed =
      false;  // by a full queue: frames of one machine may hold their sender's buffer up to the shaper
};

/// Sends as fast as it can for `duration`.
Flooded Flood(const std::string& netns, const std::string& address, uint16_t port,
              std::chrono::milliseconds duration);

/// Sends packets 0..count-1 in small groups, each when the one before has passed, as `passed()` counts.
void SendPaced(const std::string& netns, const std::string& address, uint16_t port, uint32_t count,
               const std::function<uint64_t()>& passed);

}  // namespace mlnet::lab_test
