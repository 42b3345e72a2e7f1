// SPDX-License-Identifier: Apache-2.0
#include "rpc/server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>

#include "base/errno_error.h"
#include "rpc/client.h"
#include "rpc/seqpacket.h"

namespace mlnet::rpc {
namespace {

constexpr int kBacklog = 128;
constexpr size_t kQueueMax = 1024;       // messages to a peer that does not read: then it is dropped
constexpr int kReadsPerTurn = 64;        // of one peer, so that a flood does not starve the others
constexpr uint64_t kListenerKey = 0;     // epoll key; peers start at 1

Result<void> RemoveStaleSocket(const std::string& path) {
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0) return {};
  if (!S_ISSOCK(st.st_mode)) return Err(ErrorCode::kConflict, path + " exists and is not a socket");
  if (Client::Connect(path)) {
    return Err(ErrorCode::kConflict, "another daemon listens on " + path, "stop it, or choose another daemon.socket");
  }
  if (::unlink(path.c_str()) != 0) return tl::make_unexpected(ErrnoError("unlink " + path, errno));
  return {};
}

Result<Fd> BindListener(const std::string& path, mode_t mode) {
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) return tl::make_unexpected(ErrnoError("socket(AF_UNIX)", errno));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  // Bound without permissions: nobody can connect before the mode is set.
  const mode_t old = ::umask(0777);
  const int rc = ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int err = errno;
  ::umask(old);
  if (rc != 0) return tl::make_unexpected(ErrnoError("bind " + path, err, "does the folder exist?"));
  if (::chmod(path.c_str(), mode) != 0) return tl::make_unexpected(ErrnoError("chmod " + path, errno));
  if (::listen(listener.get(), kBacklog) != 0) return tl::make_unexpected(ErrnoError("listen " + path, errno));
  return listener;
}

}  // namespace

Server::Server(Fd listener, Fd epoll, std::string path)
    : listener_(std::move(listener)), epoll_(std::move(epoll)), path_(std::move(path)) {}

Server::~Server() {
  if (listener_) ::unlink(path_.c_str());
}

Result<Server> Server::Listen(const std::string& path, mode_t mode) {
  if (!UnixAddressFits(path)) {
    return Err(ErrorCode::kInvalidArgument, "socket path '" + path + "' is empty or longer than 107 bytes");
  }
  if (auto free = RemoveStaleSocket(path); !free) return tl::make_unexpected(free.error());
  auto listener = BindListener(path, mode);
  if (!listener) return tl::make_unexpected(listener.error());
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return tl::make_unexpected(ErrnoError("epoll_create1", errno));
  epoll_event event{EPOLLIN, {.u64 = kListenerKey}};
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, listener->get(), &event) != 0) {
    return tl::make_unexpected(ErrnoError("epoll_ctl", errno));
  }
  return Server(std::move(*listener), std::move(epoll), path);
}

void Server::Watch(int op, const Peer& peer, PeerId id) {
  epoll_event event{EPOLLIN | (peer.queue.empty() ? 0u : EPOLLOUT), {.u64 = id}};
  ::epoll_ctl(epoll_.get(), op, peer.socket.get(), &event);
}

void Server::Dispatch(ServerHandler& handler) {
  std::array<epoll_event, 64> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < n; ++i) {
    const uint64_t key = events[i].data.u64;
    if (key == kListenerKey) {
      AcceptAll();
      continue;
    }
    const auto it = peers_.find(key);
    if (it == peers_.end()) continue;
    if (events[i].events & EPOLLOUT) Flush(it->second, key);
    if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) ReadAll(key, handler);
  }
  CloseBroken(handler);
}

void Server::AcceptAll() {
  for (;;) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    ucred credentials{};
    socklen_t length = sizeof(credentials);
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) continue;
    const int bytes = 2 * kMessageBytesMax;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    const PeerId id = next_peer_++;
    Peer& peer = peers_[id];
    peer.socket = std::move(socket);
    peer.info = {credentials.pid, credentials.uid, credentials.gid};
    Watch(EPOLL_CTL_ADD, peer, id);
  }
}

void Server::ReadAll(PeerId id, ServerHandler& handler) {
  Packet packet;
  for (int i = 0; i < kReadsPerTurn; ++i) {
    Peer& peer = peers_.at(id);
    if (peer.is_broken) return;
    auto state = ReceivePacket(peer.socket.get(), packet);
    if (state && *state == IoState::kWouldBlock) return;
    if (!state || *state == IoState::kClosed) {
      peer.is_broken = true;
      return;
    }
    auto request = Decode(packet.bytes).and_then(AsRequest);
    if (!request) {
      ReplyError(id, 0, request.error());
      peer.is_broken = true;
      return;
    }
    handler.OnRequest(id, peer.info, std::move(*request));
  }
}

void Server::Flush(Peer& peer, PeerId id) {
  while (!peer.queue.empty()) {
    std::vector<int> fds;
    for (const Fd& fd : peer.queue.front().fds) fds.push_back(fd.get());
    auto state = SendPacket(peer.socket.get(), peer.queue.front().bytes, fds);
    if (state && *state == IoState::kWouldBlock) break;
    if (!state || *state == IoState::kClosed) {
      peer.is_broken = true;
      return;
    }
    peer.queue.pop_front();
  }
  Watch(EPOLL_CTL_MOD, peer, id);
}

void Server::Send(PeerId id, std::string bytes, std::span<const int> fds) {
  const auto it = peers_.find(id);
  if (it == peers_.end() || it->second.is_broken) return;
  Peer& peer = it->second;
  if (peer.queue.size() >= kQueueMax) {
    peer.is_broken = true;
    return;
  }
  Outgoing outgoing{std::move(bytes), {}};
  for (const int fd : fds) outgoing.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  peer.queue.push_back(std::move(outgoing));
  Flush(peer, id);
}

void Server::Reply(PeerId peer, uint64_t id, const Json& result, std::span<const int> fds) {
  if (id == 0) return;
  std::string bytes = EncodeReply(id, result);
  if (bytes.size() > kMessageBytesMax) {
    ReplyError(peer, id, Error{ErrorCode::kProtocol, "the answer is longer than 128 KiB", "ask for one job"});
    return;
  }
  Send(peer, std::move(bytes), fds);
}

void Server::ReplyError(PeerId peer, uint64_t id, const Error& error) { Send(peer, EncodeError(id, error), {}); }

void Server::Push(PeerId peer, const Json& event) {
  Send(peer, Dump(event), {});
}

void Server::CloseBroken(ServerHandler& handler) {
  std::vector<PeerId> gone;
  for (const auto& [id, peer] : peers_) {
    if (peer.is_broken) gone.push_back(id);
  }
  for (const PeerId id : gone) {
    peers_.erase(id);
    handler.OnClosed(id);
  }
}

}  // namespace mlnet::rpc
