// SPDX-License-Identifier: Apache-2.0
#include "daemons.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <sstream>

#include "rpc/client.h"

namespace mlnet::lab {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr double kOversubscriptionMax = 1000;  // that mlnetd takes

std::string EndOfLog(const fs::path& path) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back("  " + line);
    if (lines.size() > 5) lines.pop_front();
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// An uplink with a rate of its own makes it another one for the hosts of that rack.
double OversubscriptionOf(const Topology& topology, const std::string& rack_name) {
  uint64_t sum = 0;
  for (const Host& host : topology.hosts) {
    if (host.rack != rack_name) continue;
    if (host.rate_bps == 0) return topology.oversubscription;
    sum += host.rate_bps;
  }
  for (const Rack& rack : topology.racks) {
    const uint64_t uplink = std::min(rack.up_bps.value_or(0), rack.down_bps.value_or(0));
    if (rack.name == rack_name && uplink > 0) {
      return std::min(static_cast<double>(sum) / static_cast<double>(uplink), kOversubscriptionMax);
    }
  }
  return topology.oversubscription;
}

}  // namespace

Result<fs::path> FindDaemon() {
  std::error_code ec;
  const fs::path beside = fs::read_symlink("/proc/self/exe", ec).parent_path() / "mlnetd";
  if (access(beside.c_str(), X_OK) == 0) return beside;
  std::istringstream path(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string dir; std::getline(path, dir, ':');) {
    if (access((fs::path(dir) / "mlnetd").c_str(), X_OK) == 0) return fs::path(dir) / "mlnetd";
  }
  return Err(ErrorCode::kUnavailable, fmt::format("mlnetd is neither at {} nor on $PATH", beside.string()),
             "build it (target mlnetd), or start the lab with --no-daemons");
}

std::string DaemonConfig(const Paths& paths, const Topology& topology, const Host& host) {
  return fmt::format(
      "# written by mlnet-lab\n"
      "[daemon]\nhost = \"{0}\"\ninstance = \"{1}\"\nsocket = \"{2}\"\nsocket_mode = 0o666\nlog_level = "
      "\"info\"\nstate_dir = \"{9}\"\n\n"
      "[store]\npath = \"{3}\"\n\n"
      "[datapath]\npin_root = \"{4}\"\n\n"
      "[site]\n{6}oversubscription = {7}\n\n"
      "[[iface]]\nname = \"eth0\"\nmode = \"native\"\nshare = \"exclusive\"\naggregator = "
      "{5}\ndetach_on_stop = true\n{8}",
      host.name, paths.Instance(host.name), paths.Socket(host.name).string(), paths.Store().string(),
      Paths::kPinRoot, host.is_aggregator, host.rack.empty() ? "" : fmt::format("rack = \"{}\"\n", host.rack),
      OversubscriptionOf(topology, host.rack),
      host.rate_bps == 0 ? "" : fmt::format("rate = \"{}bit\"\n", host.rate_bps), paths.HostDir(host.name).string());
}

Result<ProcessId> StartHostDaemon(const Paths& paths, const Topology& topology, const Host& host,
                                  const fs::path& program) {
  std::error_code ec;
  fs::create_directories(paths.HostDir(host.name), ec);
  std::ofstream config(paths.Config(host.name), std::ios::trunc);
  config << DaemonConfig(paths, topology, host);
  config.close();
  if (!config)
    return Err(ErrorCode::kSystem, fmt::format("cannot write {}", paths.Config(host.name).string()));
  return StartDaemon({program.string(), "--config", paths.Config(host.name).string(), "--foreground"},
                     paths.NetnsFile(host.name), paths.Log(host.name), paths.Pidfile(host.name));
}

Result<Json> CallDaemon(const Paths& paths, const Host& host, const std::string& method, const Json& params) {
  auto client = rpc::Client::Connect(paths.Socket(host.name));
  if (!client) return tl::make_unexpected(client.error());
  return client->Call(method, params, milliseconds{5000});
}

Result<void> WaitUntilReady(const Paths& paths, const Host& host, const ProcessId& id, milliseconds timeout,
                            const std::atomic<bool>& stop) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, id.pid, 0)));
  std::string last = "its socket never appeared";
  while (std::chrono::steady_clock::now() < deadline && !stop) {
    if (auto status = CallDaemon(paths, host, "status", Json::object()); status)
      return {};
    else
      last = status.error().ToString();
    // The wait between two tries is the wait for the daemon's early end.
    pollfd wait{process.get(), POLLIN, 0};
    if (!process || poll(&wait, 1, 20) > 0) {
      return Err(ErrorCode::kUnavailable,
                 fmt::format("mlnetd of host {} ended at start; the end of its log:\n{}", host.name,
                             EndOfLog(paths.Log(host.name))));
    }
  }
  if (stop) return Err(ErrorCode::kCancelled, "interrupted");
  return Err(ErrorCode::kTimeout,
             fmt::format("mlnetd of host {} does not answer after {} ms: {}; the end of its log:\n{}",
                         host.name, timeout.count(), last, EndOfLog(paths.Log(host.name))));
}

}  // namespace mlnet::lab
