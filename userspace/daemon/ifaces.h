// SPDX-License-Identifier: Apache-2.0
// The NICs of this host: which should carry the program, which do, and why not.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/link.h"
#include "control/config.h"
#include "control/model.h"
#include "control/node.h"
#include "daemon/nic_tag.h"
#include "datapath/attach.h"
#include "datapath/local_link.h"
#include "datapath/program.h"
#include "mlnet/ifname.h"

namespace mlnet::daemon {

inline constexpr const char* kDispatchedSection = "dispatched";  // notes: libxdp's dispatcher keeps programs whatever becomes of the daemon

class Ifaces {
 public:
  Ifaces(const datapath::Program& program, std::string pin_dir, NicState& state)
      : program_(program), pin_dir_(std::move(pin_dir)), state_(state) {}

  /// What processes send by interfaces with the program is marked from now on; `how` as in [priority].
  void UseTagger(datapath::Tagger tagger, std::string how);
  /// The program that htb asks; -1: there is none.
  int ClassifierFd() const { return tagger_ ? tagger_->classifier_fd() : -1; }
  /// What became of packets that processes sent: [{class, outcome, packets, help}], those above 0.
  control::Json TagCounters() const;

  /// Asks for the program on a NIC, or on all that match; what cannot be done now is tried again by Reconcile.
  void Want(const control::IfaceConfig& config);
  /// Asks and attaches at once; on an error nothing is changed.
  Result<void> Attach(const control::IfaceConfig& config);
  /// The same for all that match now; which ones, and why others were left out. An error when there is none.
  Result<control::Json> AttachMatching(const control::IfaceConfig& config);
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
  /// Makes the veth pair by which ranks reach this host as aggregator, with the program on both ends. Either address
  /// may be empty; on a host without IPv6 `address6` is left out.
  /// `takes_over`: what an earlier daemon left of it runs on.
  Result<void> OpenLocalLink(const std::string& address, const std::string& address6, const std::string& instance, bool takes_over);
  /// Wants what operators had an earlier daemon attach, if it `takes_over`; else that is forgotten.
  void WantAsBefore(bool takes_over);
  /// Takes away what an earlier daemon attached where nothing is wanted now.
  void DropOtherPrograms();
  /// Empty: there is none.
  const std::string& local_address() const { return local_address_; }
  const std::string& local_address6() const { return local_address6_; }
  bool KeepsLinks() const;                     // the operator wants some program to stay when the daemon stops

 private:
  struct Port {
    control::IfaceConfig config;
    bool is_matched = false;  // found by a pattern: nobody misses it when it is gone
    std::map<std::string, datapath::Attachment> programs{};  // by device: a bond's members, else the NIC itself
    Error problem{};          // why it is not attached, or not everywhere
    std::string why{};        // only generic mode is possible; empty: the driver decides
    std::string instead{};    // what makes native mode possible then
    std::unique_ptr<NicTag> tag{};
    Error tag_problem{};      // why what processes send by it is not marked

    bool IsAttached() const { return !programs.empty() && problem.message.empty(); }
  };
  struct Pattern {
    control::IfaceConfig config;
    IfnameList names;
  };
  Result<void> Refresh(Port& port, const std::vector<Link>& links) const;
  Result<void> AttachPrograms(Port& port, const std::vector<Link>& links) const;
  void Tag(Port& port) const;
  Result<void> AttachMissing(Port& port, const std::vector<std::string>& devices, const std::string& mode) const;
  /// Attaches what matches and is not wanted by name; the others get their reason.
  std::vector<std::string> AttachNew(const Pattern& pattern, const std::vector<Link>& links, std::map<std::string, std::string>& reasons);
  void FindMatching(const std::vector<Link>& links);
  Result<void> AttachLocalEnds(const std::string& mode);
  std::string LocalMode() const;
  void NoteAttached(const control::IfaceConfig& config) const;
  std::string LinkPin(const std::string& device) const;
  void MatchLocalEnds();

  const datapath::Program& program_;
  std::string pin_dir_;
  NicState& state_;
  std::optional<datapath::Tagger> tagger_;
  std::string tag_how_;
  std::map<std::string, Port> ports_;
  std::vector<Pattern> patterns_;
  std::map<std::string, std::string> skipped_;  // matched, but cannot carry the program: why
  std::optional<datapath::LocalLink> local_link_;
  std::vector<datapath::Attachment> local_ends_;  // destroyed before the link
  std::string local_mode_;
  std::string local_address_, local_address6_;
};

}  // namespace mlnet::daemon
