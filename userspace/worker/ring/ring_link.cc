// SPDX-License-Identifier: Apache-2.0
#include "ring/ring_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/errno_error.h"
#include "base/ip_address.h"

namespace mlnet::worker {
namespace {

constexpr size_t kGuestsMax = 8;
constexpr size_t kReadBytes = 256 * 1024;
constexpr size_t kHelloBytes = sizeof(RingHeader) + sizeof(RingHello);

Result<IpAddress> Address(const std::string& text) {
  const auto address = IpAddress::Parse(text);
  if (!address) return Err(ErrorCode::kProtocol, "mlnetd gave '" + text + "' where an IP address belongs");
  return *address;
}

Result<Fd> OpenSocket(int family) {
  Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return tl::make_unexpected(ErrnoError("socket(TCP)", errno));
  return socket;
}

// However many bytes of two tokens are the same, it takes as long.
bool IsSameToken(const char* a, const char* b) {
  unsigned char difference = 0;
  for (size_t i = 0; i < kRingTokenBytes; ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

void AppendBytes(std::vector<std::byte>& to, const void* from, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(from);
  to.insert(to.end(), first, first + bytes);
}

}  // namespace

Result<std::unique_ptr<RingLink>> RingLink::Listen(const std::string& address, const RingHello& own,
                                                   const std::optional<wire::StreamKey>& key) {
  auto local = Address(address);
  if (!local) return tl::make_unexpected(local.error());
  auto listener = OpenSocket(local->family());
  if (!listener) return tl::make_unexpected(listener.error());
  const SocketAddress any_port = local->Socket(0);
  if (::bind(listener->get(), any_port.get(), any_port.bytes) != 0 || ::listen(listener->get(), kGuestsMax) != 0) {
    return tl::make_unexpected(ErrnoError("listen on " + address + " for the ring", errno));
  }
  SocketAddress bound;
  bound.bytes = sizeof(bound.storage);
  if (::getsockname(listener->get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.bytes) != 0) {
    return tl::make_unexpected(ErrnoError("getsockname", errno));
  }
  std::unique_ptr<RingLink> link(new RingLink(own, key));
  const auto& storage = bound.storage;
  link->port_ = ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                                                    : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  link->epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!link->epoll_) return tl::make_unexpected(ErrnoError("epoll_create1", errno));
  link->listener_ = std::move(*listener);
  return link;
}

void RingLink::Watch(int fd, uint32_t events, int operation) const {
  epoll_event event{events, {.fd = fd}};
  ::epoll_ctl(epoll_.get(), operation, fd, &event);
}

Result<void> RingLink::Connect(const std::string& address, uint16_t port, uint32_t previous_rank) {
  auto remote = Address(address);
  if (!remote) return tl::make_unexpected(remote.error());
  auto socket = OpenSocket(remote->family());
  if (!socket) return tl::make_unexpected(socket.error());
  const int on = 1;
  ::setsockopt(socket->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const SocketAddress to = remote->Socket(port);
  next_name_ = remote->WithPort(port);
  if (::connect(socket->get(), to.get(), to.bytes) != 0 && errno != EINPROGRESS) {
    return tl::make_unexpected(ErrnoError("connect to " + next_name_ + ", the next rank in the ring", errno));
  }
  out_ = std::move(*socket);
  previous_ = previous_rank;
  is_out_watched_ = true;
  Watch(out_.get(), EPOLLOUT, EPOLL_CTL_ADD);
  Watch(listener_.get(), EPOLLIN, EPOLL_CTL_ADD);
  // Before whatever has been said already.
  std::vector<std::byte> queued;
  queued.swap(out_bytes_);
  Append(0, RingKind::kHello, 1, std::as_bytes(std::span(&own_, 1)));
  out_bytes_.insert(out_bytes_.end(), queued.begin(), queued.end());
  return {};
}

void RingLink::Send(RingKind kind, uint16_t hops, std::span<const std::byte> body) {
  if (is_connected_ && !out_) return;
  Append(out_number_++, kind, hops, body);
}

void RingLink::Append(uint64_t number, RingKind kind, uint16_t hops, std::span<const std::byte> body) {
  const RingHeader header{static_cast<uint32_t>(body.size()), static_cast<uint16_t>(kind), hops};
  AppendBytes(out_bytes_, &header, sizeof(header));
  AppendBytes(out_bytes_, body.data(), body.size());
  if (!key_) return;
  const uint64_t tag = TagOf(own_.rank, number, header, body);
  AppendBytes(out_bytes_, &tag, sizeof(tag));
}

// A message says nothing to any other rank than the next one, nor a second time: a ring has one connection to each, once an epoch.
uint64_t RingLink::TagOf(uint32_t sender, uint64_t number, const RingHeader& header, std::span<const std::byte> body) const {
  const std::array<uint64_t, 3> words = {sender, number, header.bytes | uint64_t{header.kind} << 32 | uint64_t{header.hops} << 48};
  return wire::TagOf(*key_, words, body);
}

// `body` is followed by its tag, if there is to be one.
bool RingLink::HasRightTag(uint64_t number, const RingHeader& header, std::span<const std::byte> body) const {
  if (!key_) return true;
  uint64_t tag;
  std::memcpy(&tag, body.data() + body.size(), sizeof(tag));
  return tag == TagOf(*previous_, number, header, body);
}

Result<void> RingLink::Flush() {
  while (out_ && HasUnsent()) {
    const ssize_t n = ::send(out_.get(), out_bytes_.data() + sent_, out_bytes_.size() - sent_, MSG_NOSIGNAL);
    if (n > 0) {
      is_connected_ = true;
      sent_ += static_cast<size_t>(n);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOTCONN) break;
    if (!is_connected_) return tl::make_unexpected(ErrnoError("connect to " + next_name_ + ", the next rank in the ring", errno));
    out_.Reset();  // it has left, or is lost: its daemon tells
    out_bytes_.clear();
    sent_ = 0;
  }
  if (!HasUnsent()) {
    out_bytes_.clear();
    sent_ = 0;
  }
  if (out_ && HasUnsent() != is_out_watched_) {
    is_out_watched_ = HasUnsent();
    Watch(out_.get(), EPOLLOUT, is_out_watched_ ? EPOLL_CTL_ADD : EPOLL_CTL_DEL);
  }
  return {};
}

Result<bool> RingLink::Receive(RingHandler& handler) {
  if (listener_ && previous_) Accept();
  if (!in_) return false;
  return ReadAll(handler);
}

void RingLink::Accept() {
  for (;;) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) break;
    if (guests_.size() == kGuestsMax) guests_.erase(guests_.begin());
    Watch(socket.get(), EPOLLIN, EPOLL_CTL_ADD);
    guests_.push_back({std::move(socket), {}});
  }
  std::erase_if(guests_, [this](Guest& guest) { return !in_ && !Admit(guest); });
  if (!in_) return;
  guests_.clear();
  listener_.Reset();
}

// False: send it away.
bool RingLink::Admit(Guest& guest) {
  std::array<std::byte, kHelloBytes + sizeof(uint64_t)> bytes;
  const size_t whole = kHelloBytes + TagBytes();
  const ssize_t n = ::recv(guest.socket.get(), bytes.data(), whole - guest.bytes.size(), 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  AppendBytes(guest.bytes, bytes.data(), static_cast<size_t>(n));
  if (n == 0 || guest.bytes.size() < whole) return n > 0;
  if (!IsPrevious(guest.bytes)) return false;
  in_ = std::move(guest.socket);
  return true;
}

bool RingLink::IsPrevious(std::span<const std::byte> message) const {
  RingHeader header;
  RingHello hello;
  std::memcpy(&header, message.data(), sizeof(header));
  std::memcpy(&hello, message.data() + sizeof(header), sizeof(hello));
  return header.kind == static_cast<uint16_t>(RingKind::kHello) && header.bytes == sizeof(hello) && hello.rank == previous_ &&
         hello.job == own_.job && hello.epoch == own_.epoch && IsSameToken(hello.token, own_.token) && HasRightTag(0, header, message.subspan(sizeof(header), sizeof(hello)));
}

Result<bool> RingLink::ReadAll(RingHandler& handler) {
  bool has_any = false;
  const size_t most = in_bytes_.size() + 4 * kReadBytes;  // the others want their turn too
  while (in_bytes_.size() < most) {
    const size_t before = in_bytes_.size();
    in_bytes_.resize(before + kReadBytes);
    const ssize_t n = ::recv(in_.get(), in_bytes_.data() + before, kReadBytes, 0);
    const int error_number = n < 0 ? errno : 0;
    in_bytes_.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n > 0) {
      has_any = true;
      continue;
    }
    if (error_number == EAGAIN || error_number == EINTR) break;
    in_.Reset();
    has_ended_ = true;
    break;
  }
  if (auto ok = TakeMessages(handler); !ok) return tl::make_unexpected(ok.error());
  return has_any;
}

Result<void> RingLink::TakeMessages(RingHandler& handler) {
  const std::span<const std::byte> bytes(in_bytes_);
  RingHeader header;
  while (in_bytes_.size() - taken_ >= sizeof(header)) {
    std::memcpy(&header, in_bytes_.data() + taken_, sizeof(header));
    if (header.bytes > kRingMessageMax) {
      return Err(ErrorCode::kProtocol, "the previous rank in the ring sent a message of " + std::to_string(header.bytes) + " bytes");
    }
    if (in_bytes_.size() - taken_ < sizeof(header) + header.bytes + TagBytes()) break;
    const auto body = bytes.subspan(taken_ + sizeof(header), header.bytes);
    if (!HasRightTag(in_number_++, header, body)) {
      return Err(ErrorCode::kProtocol, "a message in the ring that was to come from rank " + std::to_string(*previous_) + " has not the tag of the job's key",
                 "somebody in the network writes into the connection between two ranks");
    }
    taken_ += sizeof(header) + header.bytes + TagBytes();
    if (auto ok = handler.OnMessage(static_cast<RingKind>(header.kind), header.hops, body); !ok) return ok;
  }
  in_bytes_.erase(in_bytes_.begin(), in_bytes_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  return {};
}

}  // namespace mlnet::worker
