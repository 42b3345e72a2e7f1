// SPDX-License-Identifier: Apache-2.0
// The NICs of this host: which should carry the program, which do, and why not.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/config.h"
#include "control/model.h"
#include "control/node.h"
#include "datapath/attach.h"
#include "datapath/local_link.h"
#include "datapath/program.h"

namespace mlnet::daemon {

class Ifaces {
 public:
  Ifaces(const datapath::Program& program, std::string pin_dir) : program_(program), pin_dir_(std::move(pin_dir)) {}

  /// Asks for the program on a NIC; what cannot be done now is tried again by Reconcile.
  void Want(const control::IfaceConfig& config);
  /// Asks and attaches at once; on an error nothing is changed.
  Result<void> Attach(const control::IfaceConfig& config);
  Result<void> Detach(const std::string& name);

  /// Makes actual equal to wanted.
  void Reconcile();

  std::vector<control::IfaceRecord> Records() const;
  /// Interfaces as iface.list shows them, those without the program too.
  control::Json List() const;
  control::Json Show(const std::string& name) const;
  control::Json Problems() const;
  bool AnyAttached() const;
  int Ifindex(const std::string& name) const;  // 0: not attached
  control::Mac MacOf(const std::string& name) const;  // all 0: there is no such interface here
  /// Makes the veth pair by which ranks reach this host as aggregator, with the program on both ends.
  Result<void> OpenLocalLink(const std::string& address, const std::string& instance);
  /// Empty: there is none.
  const std::string& local_address() const { return local_address_; }
  bool KeepsLinks() const;                     // a pinned link stays after the daemon

 private:
  struct Port {
    control::IfaceConfig config;
    std::unique_ptr<datapath::Attachment> attachment;
    Error problem;  // why it is not attached
  };
  Result<void> TryAttach(Port& port);

  const datapath::Program& program_;
  std::string pin_dir_;
  std::map<std::string, Port> ports_;
  std::optional<datapath::LocalLink> local_link_;
  std::vector<datapath::Attachment> local_ends_;  // destroyed before the link
  std::string local_address_;
};

}  // namespace mlnet::daemon
