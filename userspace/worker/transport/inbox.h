// SPDX-License-Identifier: Apache-2.0
// What the daemon hands a rank: the job's results on this host, the sleep flags, the rank's notices.
#pragma once

#include "mlnet/job.h"
#include "transport/mapping.h"
#include "transport/notice_ring.h"

namespace mlnet::worker {

class Inbox {
 public:
  /// The descriptors stay the caller's; the mappings live on without them.
  static Result<Inbox> Open(int inbox_fd, int wake_fd, int ring_fd, unsigned local_index);

  const mlnet_cell* cells() const { return cells_.As<const mlnet_cell>(); }
  size_t num_cells() const { return num_cells_; }
  bool NextNotice(mlnet_notice& notice) { return ring_.Next(notice); }

  /// Asks for a wake-up through the ring. Full fence: look at the cells once more before sleeping.
  void SetAsleep() { __atomic_fetch_or(&wake_.As<mlnet_wake>()->asleep, bit_, __ATOMIC_SEQ_CST); }
  void SetAwake() { __atomic_fetch_and(&wake_.As<mlnet_wake>()->asleep, ~bit_, __ATOMIC_SEQ_CST); }

 private:
  Mapping cells_;
  size_t num_cells_ = 0;
  Mapping wake_;
  NoticeRing ring_;
  uint64_t bit_ = 0;
};

}  // namespace mlnet::worker
