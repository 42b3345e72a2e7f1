// SPDX-License-Identifier: Apache-2.0
// Stands before a server and, when told so, closes the connection instead of passing on an answer: the request was
// carried out, and nobody says so. Or makes it wait.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "base/fd.h"

namespace mlnet::test {

class LossyProxy {
 public:
  LossyProxy(const std::string& address, uint16_t port) : to_(Address(address, port)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own = Address("127.0.0.1", 0);
    socklen_t size = sizeof(own);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&own), size), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &size), 0);
    port_ = ntohs(own.sin_port);
    acceptor_ = std::thread([this] { AcceptAll(); });
  }
  ~LossyProxy() {
    is_stopping_ = true;
    acceptor_.join();
    for (std::thread& connection : connections_) connection.join();
  }

  uint16_t port() const { return port_; }
  /// The answer to the next request that contains `words` is lost; `and_cut`: and nothing passes from then on.
  void Lose(const std::string& words, bool and_cut = false) {
    const std::lock_guard lock(mutex_);
    words_ = words;
    is_to_cut_ = and_cut;
  }
  void Heal() { is_cut_ = false; }
  /// All answers come this much later.
  void Delay(int ms) { delay_ms_ = ms; }
  int num_lost() const { return num_lost_; }

 private:
  static constexpr int kLookEveryMs = 20;

  static sockaddr_in Address(const std::string& text, uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    EXPECT_EQ(::inet_pton(AF_INET, text.c_str(), &address.sin_addr), 1);
    return address;
  }

  void AcceptAll() {
    while (!is_stopping_) {
      pollfd p{listener_.get(), POLLIN, 0};
      if (::poll(&p, 1, kLookEveryMs) != 1) continue;
      const int client = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      connections_.emplace_back([this, client] { Pass(Fd(client)); });
    }
  }

  bool IsToBeLost(const std::string& request) {
    const std::lock_guard lock(mutex_);
    if (words_.empty() || request.find(words_) == std::string::npos) return false;
    words_.clear();
    is_cut_ = is_to_cut_;
    return true;
  }

  void Pass(Fd client) {
    const Fd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(server.get(), reinterpret_cast<const sockaddr*>(&to_), sizeof(to_)) != 0) return;
    std::string request;
    std::array<char, 65536> bytes;
    while (!is_stopping_ && !is_cut_) {
      pollfd both[] = {{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}};
      if (::poll(both, 2, kLookEveryMs) < 1) continue;
      const bool is_request = both[0].revents != 0;
      const ssize_t got = ::recv(is_request ? client.get() : server.get(), bytes.data(), bytes.size(), 0);
      if (got <= 0) return;
      if (is_request) request.append(bytes.data(), static_cast<size_t>(got));
      if (!is_request && IsToBeLost(request)) {
        ++num_lost_;
        return;
      }
      if (!is_request) {
        request.clear();
        ::poll(nullptr, 0, delay_ms_);
      }
      if (::send(is_request ? server.get() : client.get(), bytes.data(), static_cast<size_t>(got), MSG_NOSIGNAL) != got) return;
    }
  }

  const sockaddr_in to_;
  const Fd listener_;
  uint16_t port_ = 0;
  std::mutex mutex_;
  std::string words_;
  bool is_to_cut_ = false;
  std::atomic<int> num_lost_ = 0;
  std::atomic<int> delay_ms_ = 0;
  std::atomic<bool> is_cut_ = false;
  std::atomic<bool> is_stopping_ = false;
  std::list<std::thread> connections_;
  std::thread acceptor_;
};

}  // namespace mlnet::test
