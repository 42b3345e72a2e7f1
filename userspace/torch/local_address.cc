// SPDX-License-Identifier: Apache-2.0
#include "local_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <vector>

#include "mlnet/ifname.h"

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

struct Candidate {
  std::string name;
  std::string address;
};

// Interfaces that are up and have an address, in the kernel's order; with IPv6 last. An address of a link leads nowhere
// without its interface.
std::vector<Candidate> UsableInterfaces() {
  std::vector<Candidate> usable;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return usable;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<Candidate> ipv6;
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    if ((it->ifa_flags & IFF_UP) == 0 || it->ifa_addr == nullptr) continue;
    if (it->ifa_addr->sa_family == AF_INET) usable.push_back({it->ifa_name, ToText(it->ifa_addr, sizeof(sockaddr_in))});
    if (it->ifa_addr->sa_family != AF_INET6) continue;
    if (IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(it->ifa_addr)->sin6_addr)) continue;
    ipv6.push_back({it->ifa_name, ToText(it->ifa_addr, sizeof(sockaddr_in6))});
  }
  usable.insert(usable.end(), ipv6.begin(), ipv6.end());
  return usable;
}

// The address of an allowed interface: the one towards the master if it is of them. Empty: there is none.
std::string Choose(const std::vector<Candidate>& usable, const IfnameList& allowed, const std::string& towards) {
  std::string first;
  for (const Candidate& candidate : usable) {
    if (!allowed.Matches(candidate.name)) continue;
    if (candidate.address == towards) return towards;
    if (first.empty()) first = candidate.address;
  }
  return first;
}

std::string NamesOf(const std::vector<Candidate>& usable) {
  std::string names;
  for (const Candidate& c : usable) names += (names.empty() ? "" : ", ") + c.name + " " + c.address;
  return names.empty() ? "none" : names;
}

const char* Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
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
  const char* master = Variable("MASTER_ADDR");
  const std::string towards = master == nullptr ? std::string() : LocalAddressTowards(master);
  const auto usable = UsableInterfaces();
  for (const char* variable : {"MLNET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    const char* value = Variable(variable);
    if (value == nullptr) continue;
    const auto allowed = IfnameList::Parse(value);
    if (!allowed) throw std::runtime_error(std::string("mlnet: ") + variable + ": " + allowed.error().ToString());
    std::string address = Choose(usable, *allowed, towards);
    if (!address.empty()) return address;
    throw std::runtime_error(std::string("mlnet: ") + variable + "=" + value + " allows none of the interfaces that are up: " +
                             NamesOf(usable) + " (set MLNET_IFNAME, for example MLNET_IFNAME=eth)");
  }
  if (!towards.empty()) return towards;
  for (const char* allowed : {"^docker,lo", "^=lo"}) {
    if (std::string address = Choose(usable, *IfnameList::Parse(allowed), ""); !address.empty()) return address;
  }
  return "127.0.0.1";
}

}  // namespace mlnet::torch_backend
