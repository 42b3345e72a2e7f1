// SPDX-License-Identifier: Apache-2.0
#include "control/addressing.h"

#include <algorithm>
#include <charconv>

namespace mlnet::control {
namespace {

constexpr size_t kGroupBitsMin = 4;  // of the job id

bool Has(const HostRecord& host, bool ipv6) {
  return std::any_of(host.ifaces.begin(), host.ifaces.end(), [&](const IfaceRecord& i) {
    return i.attached && !(ipv6 ? i.address6 : i.address).empty();
  });
}

// Hosts of ranks whose attached interfaces have no address of the family. Those without any are somebody else's to report.
std::string Lacking(const JobView& job, const std::vector<HostRecord>& hosts, bool ipv6) {
  std::string names;
  for (const HostRecord& host : hosts) {
    const auto is_here = [&](const MemberRecord& m) { return m.host == host.host; };
    if (std::none_of(job.members.begin(), job.members.end(), is_here)) continue;
    if (Has(host, !ipv6) && !Has(host, ipv6)) names += (names.empty() ? "" : ", ") + host.host;
  }
  return names;
}

HostRecord InIpv6(HostRecord host) {
  host.local_address = host.local_address6;
  for (IfaceRecord& iface : host.ifaces) {
    iface.address = iface.address6;
    iface.prefix = iface.prefix6;
  }
  return host;
}

}  // namespace

std::optional<GroupPrefix> ParseGroupPrefix(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto base = IpAddress::Parse(text.substr(0, slash));
  GroupPrefix prefix;
  const char* end = text.data() + text.size();
  const auto [stop, ec] = std::from_chars(text.data() + slash + 1, end, prefix.bits);
  if (!base || !base->IsMulticast() || ec != std::errc() || stop != end) return std::nullopt;
  const auto longest = static_cast<int>(8 * base->bytes().size() - kGroupBitsMin);
  if (prefix.bits < (base->IsIpv6() ? 16 : 4) || prefix.bits > longest) return std::nullopt;
  prefix.base = *base;
  return prefix;
}

std::string GroupOf(const GroupPrefix& prefix, uint16_t job_id) {
  IpAddress::Mapped mapped = prefix.base.mapped();
  const int first_bit = prefix.bits + (prefix.base.IsIpv6() ? 0 : 96);
  for (int bit = first_bit; bit < 128; ++bit) {
    const auto mask = static_cast<uint8_t>(0x80 >> (bit % 8));
    uint8_t& byte = mapped[static_cast<size_t>(bit / 8)];
    const int shift = 127 - bit;
    const bool is_set = shift < 16 && ((job_id >> shift) & 1) != 0;
    byte = static_cast<uint8_t>(is_set ? byte | mask : byte & ~mask);
  }
  return IpAddress(mapped).ToString();
}

Result<std::vector<HostRecord>> HostsOfFamily(const Addressing& addressing, const JobView& job, const std::vector<HostRecord>& hosts) {
  const std::string without4 = Lacking(job, hosts, false), without6 = Lacking(job, hosts, true);
  const bool is_auto = addressing.family == "auto";
  const bool use_ipv6 = addressing.family == "ipv6" || (is_auto && !without4.empty());
  const std::string& without = use_ipv6 ? without6 : without4;
  if (!without.empty()) {
    const std::string both = is_auto ? "no IPv4 address on: " + without4 + "; no IPv6 address on: " + without6
                                     : std::string("no ") + (use_ipv6 ? "IPv6" : "IPv4") + " address on: " + without;
    return Err(ErrorCode::kUnavailable, "the hosts of job '" + job.job.name + "' share no family of addresses: " + both,
               "give their interfaces addresses of one family (IPv6: a global or unique local one)");
  }
  if (!use_ipv6) return hosts;
  std::vector<HostRecord> seen;
  for (const HostRecord& host : hosts) seen.push_back(InIpv6(host));
  return seen;
}

}  // namespace mlnet::control
