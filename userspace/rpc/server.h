// SPDX-License-Identifier: Apache-2.0
// The server side of the local RPC: one thread, one epoll descriptor, replies whenever the owner has them.
// Why not answer in the handler: a join is answered when all hosts are ready, seconds later.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "rpc/message.h"

namespace mlnet::rpc {

using PeerId = uint64_t;  // never reused

struct PeerInfo {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

/// What the server tells its owner. It may call the server back from inside these.
class ServerHandler {
 public:
  virtual ~ServerHandler() = default;
  virtual void OnRequest(PeerId peer, const PeerInfo& info, Request request) = 0;
  /// The connection is gone; replies to it are dropped from here on.
  virtual void OnClosed(PeerId peer) = 0;
};

class Server {
 public:
  /// Replaces a socket that nobody listens on; kConflict when somebody does.
  static Result<Server> Listen(const std::string& path, mode_t mode);
  Server(Server&&) = default;
  Server& operator=(Server&&) = delete;
  ~Server();

  /// Readable when Dispatch has work.
  int poll_fd() const { return epoll_.get(); }
  /// Handles everything that is ready, without blocking.
  void Dispatch(ServerHandler& handler);

  void Reply(PeerId peer, uint64_t id, const Json& result, std::span<const int> fds = {});
  void ReplyError(PeerId peer, uint64_t id, const Error& error);
  void Push(PeerId peer, const Json& event);
  size_t num_peers() const { return peers_.size(); }

 private:
  struct Outgoing {
    std::string bytes;
    std::vector<Fd> fds;
  };
  struct Peer {
    Fd socket;
    PeerInfo info;
    std::deque<Outgoing> queue;  // waits for the peer to read
    bool is_broken = false;      // closed at the next Dispatch
  };

  Server(Fd listener, Fd epoll, std::string path);
  void AcceptAll();
  void ReadAll(PeerId id, ServerHandler& handler);
  void Flush(Peer& peer, PeerId id);
  void Send(PeerId id, std::string bytes, std::span<const int> fds);
  void Watch(int op, const Peer& peer, PeerId id);
  void CloseBroken(ServerHandler& handler);

  Fd listener_;
  Fd epoll_;
  std::string path_;
  PeerId next_peer_ = 1;
  std::map<PeerId, Peer> peers_;
};

}  // namespace mlnet::rpc
