// SPDX-License-Identifier: Apache-2.0
// A few hosts in own network namespaces behind a bridge, each with its real mlnetd, and ranks that speak RPC
// and send packets by hand. Needs root. Independent of mlnet-lab, so that each can be tested without the other.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "mlnet/job.h"
#include "rpc/client.h"
#include "unit/temp_folder.h"

namespace mlnet::test {

using rpc::Json;

/// Polls until `condition` holds; false after `timeout`.
bool WaitUntil(const std::function<bool()>& condition, std::chrono::milliseconds timeout = std::chrono::seconds(10));

/// Exit code of a command line, and what it printed.
struct Ran {
  int exit_code = -1;
  std::string output;
};
Ran Shell(const std::string& command);

/// A rank that has asked to join. Answered when reply or error is set.
struct Joined {
  std::unique_ptr<rpc::Client> client;
  rpc::Reply reply;
  Error error;
  bool ok = false;
  uint64_t took_ms = 0;

  const mlnet_cell* MapInbox();  // read-only view of all cells
  Json WaitPush(const std::string& event);
};

struct JoinArgs {
  std::string host;
  int rank = 0;
  int world_size = 2;
  int timeout_ms = 20'000;  // a busy machine may take seconds to install a job
};

class DaemonLab {
 public:
  /// Hosts that begin with 'a' may aggregate. None has its daemon yet.
  explicit DaemonLab(std::vector<std::string> hosts);
  ~DaemonLab();

  /// eth1 in a network of its own, 10.99.0.0/24.
  void AddSecondNic(const std::string& host);
  /// What came out of a host by its NIC, as the switch counts it.
  uint64_t BytesFrom(const std::string& host, const std::string& nic) const;

  /// What daemons that are started from now on have in [store]; a file in the lab's folder where it is not called.
  void UseStore(const std::string& toml) { store_ = toml; }
  /// What those have in [daemon], aside from names and paths.
  void UseDaemon(const std::string& toml) { daemon_ = toml; }
  /// What those have in [[iface]], aside from aggregator.
  void UseIface(const std::string& toml) { iface_ = toml; }
  /// Those run as this user, with the capabilities that mlnetd.service gives it and no others; from the first call on their
  /// pins are in a BPF file system of the lab's, which is that user's like the lab's folder.
  void UseUser(uid_t uid);
  void Start(const std::string& host, const std::string& more_config = "");
  void StartAll();
  void Signal(const std::string& host, int signal);  // and waits for its end
  pid_t Pid(const std::string& host) const { return daemons_.at(host); }

  std::string Netns(const std::string& host) const;
  std::string Socket(const std::string& host) const { return folder_ / (host + ".sock"); }
  std::string ConfigFile(const std::string& host) const { return folder_ / (host + ".toml"); }
  std::string Log(const std::string& host) const;
  std::string PinPath(const std::string& host) const;
  std::string Address(const std::string& host) const;
  std::string Path(const std::string& name) const { return folder_ / name; }
  /// Runs `body` on a thread inside a host's network namespace.
  void In(const std::string& host, const std::function<void()>& body) const;
  /// An XDP program that passes everything, on eth0 of a host; detached when the descriptor closes.
  Fd AttachPass(const std::string& host) const;

  Json Call(const std::string& host, const std::string& method, const Json& params = Json::object());
  Error CallError(const std::string& host, const std::string& method, const Json& params);
  /// A job, as the first host's daemon shows it.
  Json Show(const std::string& job) { return Call(hosts_.front(), "job.show", {{"name", job}}); }
  /// The job as it is when all have left: what ranks count they say once a second, and then.
  Json ShowOver(const std::string& job);
  /// All at the same time, in the order given.
  std::vector<Joined> Join(const std::string& job, const std::vector<JoinArgs>& ranks);
  void Leave(std::vector<Joined>& ranks);

  /// Sends one contribution of `joined` with all payload words equal to `word`.
  void Contribute(const std::string& host, const Joined& joined, uint64_t seq, uint64_t word, uint32_t fingerprint = 7,
                  uint8_t traffic_class = 0) const;

  /// Rank 0 on w1 and rank 1 on w2 contribute numbers of their own to seq, below the job's slots; both hosts must
  /// receive the sum.
  void ExpectSum(std::vector<Joined>& ranks, uint64_t seq) const;

  /// Entries of the job tables that are in use on a host.
  int NumInnerMaps(const std::string& host) const;
  int NumFds(const std::string& host) const;

 private:
  void Plug(const std::string& host, const std::string& nic, const std::string& port, const std::string& bridge,
            const std::string& address);
  [[noreturn]] void Exec(const std::string& host) const;

  TempFolder folder_;
  std::string prefix_;
  std::string store_ = "path = \"" + (folder_ / "store.db") + "\"";
  std::string daemon_;
  std::string iface_ = "name = \"eth0\"";
  std::string pin_root_ = "/sys/fs/bpf/mlnet";
  uid_t uid_ = 0;
  std::vector<std::string> hosts_;
  std::vector<Fd> pass_links_;  // of the switch's ports
  std::map<std::string, pid_t> daemons_;
};

}  // namespace mlnet::test
