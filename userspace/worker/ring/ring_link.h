// SPDX-License-Identifier: Apache-2.0
// The two TCP connections of a rank in the ring: one to the next rank, one from the previous. Messages, no meaning.
// Invariants: (1) nothing blocks; (2) nobody is heard before it has shown the job's token, which travels by the daemons only;
// (3) where the job has a key, each message has a tag made with it, sender and number included, or the job ends by name.
// Not here: how long silence may last (ring_port.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "mlnet/error.h"
#include "ring/ring_message.h"

namespace mlnet::worker {

class RingHandler {
 public:
  virtual ~RingHandler() = default;
  virtual Result<void> OnMessage(RingKind kind, uint16_t hops, std::span<const std::byte> body) = 0;
};

class RingLink final : public RingSink {
 public:
  /// `own`: what this rank says of itself, token included. `key`: of a job whose packets have tags.
  static Result<std::unique_ptr<RingLink>> Listen(const std::string& address, const RingHello& own, const std::optional<wire::StreamKey>& key);

  uint16_t port() const { return port_; }
  /// Begins to connect to the next rank; the previous one is let in from here on.
  Result<void> Connect(const std::string& address, uint16_t port, uint32_t previous_rank);
  /// Kept until there is a connection, and dropped once it has ended.
  void Send(RingKind kind, uint16_t hops, std::span<const std::byte> body) override;
  /// What has come in goes to `handler`; true when anything did. An error is final.
  Result<bool> Receive(RingHandler& handler);
  /// Hands over to the kernel what it has room for. An error: the next rank cannot be reached at all.
  Result<void> Flush();

  bool IsHeard() const { return static_cast<bool>(in_); }  // the previous rank is connected
  bool HasEnded() const { return has_ended_; }              // it was, and is no more
  bool HasUnsent() const { return sent_ < out_bytes_.size(); }
  /// Readable when there is something to do.
  int poll_fd() const { return epoll_.get(); }

 private:
  /// Somebody who has connected and did not say yet who it is.
  struct Guest {
    Fd socket;
    std::vector<std::byte> bytes;
  };

  RingLink(const RingHello& own, const std::optional<wire::StreamKey>& key) : own_(own), key_(key) {}
  size_t TagBytes() const { return key_ ? sizeof(uint64_t) : 0; }
  uint64_t TagOf(uint32_t sender, uint64_t number, const RingHeader& header, std::span<const std::byte> body) const;
  bool HasRightTag(uint64_t number, const RingHeader& header, std::span<const std::byte> body) const;
  void Append(uint64_t number, RingKind kind, uint16_t hops, std::span<const std::byte> body);
  void Watch(int fd, uint32_t events, int operation) const;
  void Accept();
  bool Admit(Guest& guest);
  bool IsPrevious(std::span<const std::byte> hello) const;
  Result<bool> ReadAll(RingHandler& handler);
  Result<void> TakeMessages(RingHandler& handler);

  const RingHello own_;
  const std::optional<wire::StreamKey> key_;
  uint16_t port_ = 0;
  Fd epoll_, listener_, out_, in_;
  std::vector<Guest> guests_;
  std::optional<uint32_t> previous_;
  std::string next_name_;
  bool is_connected_ = false;  // something has left by out_
  bool is_out_watched_ = false;
  bool has_ended_ = false;
  std::vector<std::byte> out_bytes_, in_bytes_;
  uint64_t out_number_ = 1, in_number_ = 1;  // of the next message each way; a hello's is 0
  size_t sent_ = 0;  // of out_bytes_
  size_t taken_ = 0;  // of in_bytes_
};

}  // namespace mlnet::worker
