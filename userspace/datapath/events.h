// SPDX-License-Identifier: Apache-2.0
// The kernel's events of this host (ml_events), as they come.
#pragma once

#include <functional>
#include <memory>

#include "datapath/program.h"
#include "mlnet/event.h"

struct ring_buffer;

namespace mlnet::datapath {

class EventReader {
 public:
  using Handler = std::function<void(const mlnet_event&)>;
  static Result<EventReader> Open(const Program& program, Handler handler);

  /// Readable when Dispatch has work.
  int poll_fd() const;
  void Dispatch();

 private:
  struct Free {
    void operator()(ring_buffer* ring) const;
  };
  std::unique_ptr<Handler> handler_;  // its address is libbpf's context
  std::unique_ptr<ring_buffer, Free> ring_;
};

}  // namespace mlnet::datapath
