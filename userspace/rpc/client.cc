// SPDX-License-Identifier: Apache-2.0
#include "rpc/client.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>

#include "base/errno_error.h"
#include "rpc/seqpacket.h"

namespace mlnet::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kNotifyTimeout{1000};

// Waits for `events`; false when the deadline passed first.
Result<bool> WaitFor(int fd, short events, steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000)));
    if (n > 0) return true;
    if (n == 0) return false;
    if (errno != EINTR) return tl::make_unexpected(ErrnoError("poll on the RPC socket", errno));
  }
}

Error ConnectError(const std::string& path, int err) {
  const char* hint = err == EACCES || err == EPERM ? "join the socket's group, or set daemon.socket_mode"
                                                   : "start mlnetd, or name its socket with MLNET_SOCKET";
  return ErrnoError("connect to mlnetd at " + path, err, hint);
}

}  // namespace

Result<Client> Client::Connect(const std::string& path) {
  if (!UnixAddressFits(path)) {
    return Err(ErrorCode::kInvalidArgument, "socket path '" + path + "' is empty or longer than 107 bytes");
  }
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return tl::make_unexpected(ErrnoError("socket(AF_UNIX)", errno));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return tl::make_unexpected(ConnectError(path, errno));
  }
  const int bytes = 2 * kMessageBytesMax;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  return Client(std::move(socket), path);
}

Error Client::Gone() const {
  return Error{ErrorCode::kUnavailable, "mlnetd at " + path_ + " closed the connection", "see mlnetd's log"};
}

Result<void> Client::Send(const Request& request, milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  const std::string bytes = EncodeRequest(request);
  for (;;) {
    auto sent = SendPacket(socket_.get(), bytes, {});
    if (!sent) return tl::make_unexpected(sent.error());
    if (*sent == IoState::kDone) return {};
    if (*sent == IoState::kClosed) return tl::make_unexpected(Gone());
    auto ready = WaitFor(socket_.get(), POLLOUT, deadline);
    if (!ready) return tl::make_unexpected(ready.error());
    if (!*ready) return Err(ErrorCode::kTimeout, "mlnetd at " + path_ + " does not read its socket");
  }
}

Result<std::optional<Client::Incoming>> Client::Receive(steady_clock::time_point deadline) {
  for (;;) {
    Packet packet;
    auto state = ReceivePacket(socket_.get(), packet);
    if (!state) return tl::make_unexpected(state.error());
    if (*state == IoState::kClosed) return tl::make_unexpected(Gone());
    if (*state == IoState::kDone) {
      auto body = Decode(packet.bytes);
      if (!body) return tl::make_unexpected(body.error());
      return Incoming{std::move(*body), std::move(packet.fds)};
    }
    auto ready = WaitFor(socket_.get(), POLLIN, deadline);
    if (!ready) return tl::make_unexpected(ready.error());
    if (!*ready) return std::optional<Incoming>{};
  }
}

Result<Json> Client::Call(const std::string& method, const Json& params, milliseconds timeout) {
  auto reply = CallWithFds(method, params, timeout);
  if (!reply) return tl::make_unexpected(reply.error());
  return std::move(reply->result);
}

Result<Reply> Client::CallWithFds(const std::string& method, const Json& params, milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  const uint64_t id = next_id_++;
  if (auto sent = Send({id, method, params}, timeout); !sent) return tl::make_unexpected(sent.error());
  for (;;) {
    auto incoming = Receive(deadline);
    if (!incoming) return tl::make_unexpected(incoming.error());
    if (!*incoming) {
      return Err(ErrorCode::kTimeout, "mlnetd at " + path_ + " did not answer '" + method + "' within " +
                                          std::to_string(timeout.count()) + " ms");
    }
    Json& body = (*incoming)->body;
    if (body.contains("event")) {
      pushes_.push_back(std::move(body));
      continue;
    }
    // An answer to an earlier call that timed out is nobody's any more.
    if (auto answered = GetOr<uint64_t>(body, "id", 0); !answered || *answered != id) continue;
    if (body.contains("error")) return tl::make_unexpected(ErrorFromJson(body["error"]));
    if (!body.contains("result")) return Err(ErrorCode::kProtocol, "a reply has neither result nor error");
    return Reply{std::move(body["result"]), std::move((*incoming)->fds)};
  }
}

Result<void> Client::Notify(const std::string& method, const Json& params) {
  return Send({0, method, params}, kNotifyTimeout);
}

Result<std::optional<Json>> Client::NextPush(milliseconds timeout) {
  if (!pushes_.empty()) {
    Json push = std::move(pushes_.front());
    pushes_.pop_front();
    return push;
  }
  const auto deadline = steady_clock::now() + timeout;
  for (;;) {
    auto incoming = Receive(deadline);
    if (!incoming) return tl::make_unexpected(incoming.error());
    if (!*incoming) return std::optional<Json>{};
    if ((*incoming)->body.contains("event")) return std::optional<Json>{std::move((*incoming)->body)};
  }
}

}  // namespace mlnet::rpc
