// SPDX-License-Identifier: Apache-2.0
// The XDP program on one NIC: through an own bpf_link, or through libxdp's dispatcher beside other
// programs. Never takes a NIC from somebody else, never falls back without saying so.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "datapath/program.h"

namespace mlnet::datapath {

struct AttachRequest {
  std::string name;
  std::string mode;      // native, generic, auto
  bool shared = false;   // use the dispatcher when another program is there
  std::string pin_link;  // path; not empty: the program stays when the daemon stops
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
  /// False when the NIC is gone or somebody detached the program.
  bool IsAlive() const;

 private:
  struct Dispatcher;  // the program inside libxdp's dispatcher
  Attachment();
  static Result<Attachment> ViaLink(const Program& program, const AttachRequest& request, int ifindex, bool native);
  static Result<Attachment> ViaDispatcher(const Program& program, const AttachRequest& request, int ifindex);

  AttachState state_;
  Fd link_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

}  // namespace mlnet::datapath
