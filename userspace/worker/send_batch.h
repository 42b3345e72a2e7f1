// SPDX-License-Identifier: Apache-2.0
// Between stages 4 and 6: packets of one flow gathered into one hand-over to the kernel.
// Invariants: all packets of a batch are as long as the first but the last, which may be shorter.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "transport/transport.h"

namespace mlnet::worker {

class SendBatch {
 public:
  explicit SendBatch(Transport& transport)
      : transport_(transport), bytes_(std::make_unique<std::array<std::byte, kBatchBytesMax>>()) {}

  /// Room for one packet; what does not fit behind the packets before it is sent first.
  std::span<std::byte> Take(size_t flow, size_t bytes) {
    const bool fits = flow == flow_ && packets_ < kBatchPacketsMax && !is_closed_ &&
                      bytes <= packet_bytes_ && used_ + bytes <= kBatchBytesMax;
    if (packets_ > 0 && !fits) Flush();
    if (packets_ == 0) {
      flow_ = flow;
      packet_bytes_ = bytes;
    }
    is_closed_ = bytes < packet_bytes_;
    ++packets_;
    used_ += bytes;
    return std::span(*bytes_).subspan(used_ - bytes, bytes);
  }
  void Flush() {
    if (packets_ == 0) return;
    auto sent = transport_.Send(flow_, std::span(*bytes_).first(used_), packet_bytes_);
    if (!sent) last_error_ = sent.error();
    packets_ = 0;
    used_ = 0;
    is_closed_ = false;
  }
  /// Why the newest failed hand-over failed; a later success does not clear it.
  const std::optional<Error>& last_error() const { return last_error_; }

 private:
  Transport& transport_;
  std::unique_ptr<std::array<std::byte, kBatchBytesMax>> bytes_;
  size_t flow_ = 0;
  size_t packets_ = 0;
  size_t packet_bytes_ = 0;
  size_t used_ = 0;
  bool is_closed_ = false;  // a shorter packet came: it is the last
  std::optional<Error> last_error_;
};

}  // namespace mlnet::worker
