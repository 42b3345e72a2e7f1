// SPDX-License-Identifier: Apache-2.0
// The client side of mlnetd's local RPC, as libmlnet and mlnetctl use it.
// One thread at a time; pushes that arrive during a call are kept for NextPush.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "rpc/message.h"

namespace mlnet::rpc {

struct Reply {
  Json result;
  std::vector<Fd> fds;
};

class Client {
 public:
  /// kUnavailable when nobody listens, kPermission when the socket is not ours to use; both with a hint.
  static Result<Client> Connect(const std::string& path);

  /// Sends a request and waits for its reply. The daemon's error comes back as it was; kTimeout after
  /// `timeout`; kUnavailable when the daemon went away.
  Result<Json> Call(const std::string& method, const Json& params, std::chrono::milliseconds timeout);
  Result<Reply> CallWithFds(const std::string& method, const Json& params, std::chrono::milliseconds timeout);

  /// Sends a request that has no reply. Blocks only while the daemon's queue is full, at most a second.
  Result<void> Notify(const std::string& method, const Json& params);

  /// The next push: nullopt when none came within `timeout`, kUnavailable when the daemon went away.
  Result<std::optional<Json>> NextPush(std::chrono::milliseconds timeout = std::chrono::milliseconds{0});

  /// Forgets the pushes that have been read and not been asked for.
  void DropPushes() { pushes_.clear(); }

  /// Readable when NextPush may have something. Empty the queue with NextPush before sleeping on it.
  int poll_fd() const { return socket_.get(); }

 private:
  Client(Fd socket, std::string path) : socket_(std::move(socket)), path_(std::move(path)) {}

  struct Incoming {
    Json body;
    std::vector<Fd> fds;
  };
  Result<void> Send(const Request& request, std::chrono::milliseconds timeout);
  Result<std::optional<Incoming>> Receive(std::chrono::steady_clock::time_point deadline);
  Error Gone() const;

  Fd socket_;
  std::string path_;
  uint64_t next_id_ = 1;
  std::deque<Json> pushes_;
};

}  // namespace mlnet::rpc
