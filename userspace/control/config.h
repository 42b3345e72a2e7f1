// SPDX-License-Identifier: Apache-2.0
// The daemon's configuration file, checked: every key known, every value in range.
// Why strict: a misspelt key that is ignored shows up weeks later as a wrong setting.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "control/addressing.h"
#include "control/model.h"
#include "control/priority.h"
#include "mlnet/error.h"

namespace mlnet::control {

struct IfaceConfig {
  std::string name;
  std::string match{};              // instead of a name: all that match, in the grammar of <mlnet/ifname.h>
  std::string mode = "native";      // native, generic, auto
  std::string share = "exclusive";  // exclusive, shared
  bool aggregator = false;
  bool detach_on_stop = true;
  uint64_t rate_bps = 0;  // of each direction; 0: what the driver says
};

/// What one user may have on this host; 0: no limit.
struct Quota {
  uint32_t jobs_per_user = 0;
  uint32_t slots_per_job = 0;   // where it is summed
  uint32_t slots_per_user = 0;  // of all jobs that are summed here
};

/// How mlnet's packets are marked in this network.
struct PriorityConfig {
  DscpTable dscp = kDscpDefault;
  std::string attach = "auto";  // the program that marks what processes send: auto, tcx, clsact, off
};

/// The cluster store: etcd's addresses, and how to get in.
struct EtcdConfig {
  std::vector<std::string> endpoints;  // "http://10.0.0.1:2379"; empty: the store is a file
  std::string prefix = "mlnet";        // of all keys
  std::string ca, cert, key;           // PEM files; without ca: what the system trusts
  std::string user, password_file;
  uint32_t compact_s = 300;            // history older than this is dropped; 0: leave that to etcd
};

struct Config {
  std::string host;      // default: the host name
  std::string instance;  // default: host
  std::string socket = "/run/mlnet/mlnetd.sock";
  mode_t socket_mode = 0660;
  std::string log_level = "info";
  std::string state_dir = "/var/lib/mlnet";  // what is to be undone after a crash is noted there
  uint32_t reconnect_ms = 5000;  // ranks have so long to come back to a daemon that was restarted
  std::string store = "/var/lib/mlnet/store.db";  // file, or etcd.endpoints as they are spelt in the file
  EtcdConfig etcd;
  uint16_t port = 0;  // default: MLNET_UDP_PORT
  std::string pin_root = "/sys/fs/bpf/mlnet";
  uint32_t slots = 0;  // default: MLNET_SLOTS_MAX
  Addressing addressing;
  std::string local_address = "169.254.28.12";  // of this host's aggregator for its own ranks; empty: none
  std::string local_address6 = "fd6d:6c6e:6574::1";
  std::vector<IfaceConfig> ifaces;
  std::string rack;             // the switch this host is plugged into; empty: the core itself
  double oversubscription = 0;  // of the core: a rack's uplink is 1/x of its hosts' links; 0: it never blocks
  double ageing = 8;  // a job that waits is served next after so many times its own service
  Quota quota;
  PriorityConfig priority;
  JobSpec job;  // defaults for jobs; job.multicast is [datapath] multicast
};

/// Reads TOML text; `source` names it in errors: "FILE:LINE:COLUMN: ...".
Result<Config> ParseConfig(std::string_view text, const std::string& source, const std::string& hostname);
Result<Config> LoadConfig(const std::string& path);

/// kInvalidArgument when a job cannot have this; the names in the message are those of the file.
inline constexpr uint32_t kLostMsMin = 200;
inline constexpr uint32_t kLostMsMax = 3'600'000;
Result<void> CheckSpec(const JobSpec& spec);

/// "auto", or a shape of the planner; the message goes on after the name of the setting.
Result<void> CheckShape(const std::string& shape);

/// 1..63 of [A-Za-z0-9._-]: names end up in paths and messages.
bool IsName(std::string_view name);

}  // namespace mlnet::control
