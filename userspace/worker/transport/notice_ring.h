// SPDX-License-Identifier: Apache-2.0
// The reading end of a BPF ring buffer, by hand: libmlnet does without libbpf, so that a training
// process needs no capability. Layout: a page with the consumer position (ours), a page with the
// producer position, then the data mapped twice in a row, so that no record wraps.
#pragma once

#include <atomic>

#include "mlnet/event.h"
#include "transport/mapping.h"

namespace mlnet::worker {

class NoticeRing {
 public:
  static Result<NoticeRing> Open(int fd);

  /// Takes the oldest record; false when there is none.
  bool Next(mlnet_notice& notice);

 private:
  Mapping consumer_;
  Mapping producer_;
  size_t data_bytes_ = 0;
  size_t page_bytes_ = 0;
};

}  // namespace mlnet::worker
