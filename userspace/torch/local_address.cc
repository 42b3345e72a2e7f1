// SPDX-License-Identifier: Apache-2.0
#include "local_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

namespace mlnet::torch_backend {
namespace {

std::string ToText(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  const int failed = getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return failed != 0 ? std::string() : std::string(text);
}

std::string SourceTowards(const addrinfo& peer) {
  const int fd = socket(peer.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  sockaddr_storage local{};
  socklen_t length = sizeof(local);
  // Connecting a UDP socket sends nothing; it only asks the routing table.
  const bool ok = connect(fd, peer.ai_addr, peer.ai_addrlen) == 0 &&
                  getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0;
  close(fd);
  return ok ? ToText(reinterpret_cast<const sockaddr*>(&local), length) : std::string();
}

std::string FirstUsableInterface() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    const bool usable = (it->ifa_flags & IFF_UP) != 0 && (it->ifa_flags & IFF_LOOPBACK) == 0;
    if (usable && it->ifa_addr != nullptr && it->ifa_addr->sa_family == AF_INET) {
      return ToText(it->ifa_addr, sizeof(sockaddr_in));
    }
  }
  return {};
}

}  // namespace

std::string LocalAddressTowards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* it = found; it != nullptr; it = it->ai_next) {
    if (std::string address = SourceTowards(*it); !address.empty()) return address;
  }
  return {};
}

std::string ReachableAddress() {
  if (const char* master = std::getenv("MASTER_ADDR"); master != nullptr && *master != '\0') {
    if (std::string address = LocalAddressTowards(master); !address.empty()) return address;
  }
  const std::string address = FirstUsableInterface();
  return address.empty() ? "127.0.0.1" : address;
}

}  // namespace mlnet::torch_backend
