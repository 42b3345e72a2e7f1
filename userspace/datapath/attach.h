// SPDX-License-Identifier: Apache-2.0
// The XDP program on one NIC: through an own bpf_link, or through libxdp's dispatcher beside other
// programs. Never takes a NIC from somebody else, never falls back without saying so.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "datapath/pinned_link.h"
#include "datapath/program.h"

namespace mlnet::datapath {

struct AttachRequest {
  std::string name;
  std::string mode;      // native, generic, auto
  bool shared = false;   // use the dispatcher when another program is there
  std::string pin_link;  // path: the program stays when the daemon is killed; what is pinned there already is taken over
  bool stays = false;    // also when the daemon stops
  uint32_t earlier_prog_id = 0;  // of an earlier daemon, in the dispatcher: goes as soon as this one's is there
};

struct AttachState {
  int ifindex = 0;
  std::string mode;  // native, generic
  std::string via;   // bpf_link, dispatcher
  std::string why;   // how it came to mode and via
  uint32_t prog_id = 0;
};

class Attachment {
 public:
  /// kConflict names the program that has the NIC.
  static Result<Attachment> Attach(const Program& program, const AttachRequest& request);
  Attachment(Attachment&&) noexcept;
  Attachment& operator=(Attachment&&) = delete;
  ~Attachment();

  const AttachState& state() const { return state_; }
  /// An operator wants it gone: it does not stay whatever was asked for.
  void LetGo() { link_.Stay(false); }
  /// False when the NIC is gone or somebody detached the program.
  bool IsAlive() const;

 private:
  struct Dispatcher;  // the program inside libxdp's dispatcher
  Attachment();
  static std::optional<Attachment> TakeOver(const Program& program, const AttachRequest& request, int ifindex);
  static Result<Attachment> ViaLink(const Program& program, const AttachRequest& request, int ifindex, bool native);
  static Result<Attachment> ViaDispatcher(const Program& program, const AttachRequest& request, int ifindex);

  AttachState state_;
  PinnedLink link_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

/// Takes an earlier daemon's program out of libxdp's dispatcher, where it stays whatever becomes of the daemon.
void RemoveFromDispatcher(int ifindex, uint32_t prog_id);

}  // namespace mlnet::datapath
