// SPDX-License-Identifier: Apache-2.0
// A queue for each priority on a NIC, and what was there before. Set by an operator, undone by them, by the daemon's
// end, or by the next daemon after a crash.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/priority.h"
#include "daemon/nic_state.h"
#include "datapath/qdisc.h"

namespace mlnet::daemon {

struct QosRequest {
  std::string iface;
  std::vector<uint32_t> weights;  // by traffic class; empty: strict priority
  std::string kind = "auto";      // or the only one to try: mqprio, prio, ets, htb
  uint64_t rate_bps = 0;          // of the link, for htb; 0: not known
};

class Qos {
 public:
  explicit Qos(NicState& state) : state_(state) {}

  /// `classifier`: the program that htb asks; below 0: there is none. On an error nothing has changed.
  Result<control::Json> Set(const QosRequest& request, int classifier, const control::DscpTable& dscp);
  /// Nothing to do where nothing was set.
  Result<void> Clear(const std::string& iface);
  /// What is set there, or what the interface has otherwise.
  control::Json Show(const std::string& iface, const control::DscpTable& dscp) const;

  void ClearAll();
  /// What a killed daemon left.
  void Undo();
  /// The same where jobs run on: it is this daemon's from here on.
  void TakeOver();

 private:
  struct Before {
    int ifindex = 0;
    datapath::RootQdisc root;
  };
  static std::optional<Before> BeforeOf(const control::Json& entry, const std::string& iface);
  static Result<void> Restore(const control::Json& entry, const std::string& iface);

  NicState& state_;
  std::set<std::string> ifaces_;  // where it is set
};

}  // namespace mlnet::daemon
