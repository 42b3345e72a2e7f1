// SPDX-License-Identifier: Apache-2.0
#include "control/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/read_file.h"
#include "control/config_reader.h"
#include "mlnet/ifname.h"
#include "mlnet/job.h"
#include "plan/planner.h"

namespace mlnet::control {
namespace {

constexpr uint32_t kWeightMax = 100;

// 0o660, or "0660" for those who know chmod better than TOML.
void ReadMode(TableReader& in, const char* key, mode_t& out) {
  if (!in.IsString(key)) return in.Number(key, 0, 0777, out);
  std::string text;
  in.String(key, text);
  unsigned mode = 0;
  const char* end = text.data() + text.size();
  const auto [stop, ec] = std::from_chars(text.data(), end, mode, 8);
  if (ec == std::errc() && stop == end && mode <= 0777) out = mode;
  else in.Fail(key, "must be an octal mode such as \"0660\"");
}

void ReadDaemon(TableReader& in, Config& out) {
  in.String("host", out.host);
  if (!IsName(out.host)) in.Fail("host", "must be 1 to 63 of A-Z a-z 0-9 . _ -");
  out.instance = out.host;
  in.String("instance", out.instance);
  if (!IsName(out.instance)) in.Fail("instance", "must be 1 to 63 of A-Z a-z 0-9 . _ -");
  in.String("socket", out.socket);
  ReadMode(in, "socket_mode", out.socket_mode);
  in.String("state_dir", out.state_dir);
  in.Number("reconnect_ms", 100, 600'000, out.reconnect_ms);
  in.OneOf("log_level", out.log_level, {"trace", "debug", "info", "warning", "error", "critical", "off"});
  in.RejectUnknown();
}

// "http://a:2379,http://b:2379"
bool ParseEndpoints(std::string_view text, std::vector<std::string>& out) {
  for (;;) {
    const size_t comma = text.find(',');
    std::string one(text.substr(0, comma));
    while (one.ends_with('/')) one.pop_back();
    const size_t scheme = one.starts_with("http://") ? 7 : one.starts_with("https://") ? 8 : one.size();
    if (one.size() <= scheme || one.find_first_of(" /?#@", scheme) != std::string::npos) return false;
    out.push_back(std::move(one));
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

void ReadUrl(TableReader& in, Config& out) {
  std::string url;
  in.String("url", url);
  constexpr std::string_view kFile = "sqlite:", kEtcd = "etcd:";
  if (url.empty()) return;
  if (out.store != Config{}.store) in.Fail("url", "and store.path name two stores, give one");
  if (url.starts_with(kFile) && url.size() > kFile.size()) {
    out.store = url.substr(kFile.size());
  } else if (url.starts_with(kEtcd) && ParseEndpoints(std::string_view(url).substr(kEtcd.size()), out.etcd.endpoints)) {
    out.store = url;
  } else {
    in.Fail("url", "is '" + url + "', must be sqlite:/PATH or etcd:http://HOST:2379,http://HOST:2379");
  }
}

void ReadStore(TableReader& in, Config& out) {
  EtcdConfig& etcd = out.etcd;
  in.String("path", out.store);
  ReadUrl(in, out);
  in.String("prefix", etcd.prefix);
  if (!IsName(etcd.prefix)) in.Fail("prefix", "must be 1 to 63 of A-Z a-z 0-9 . _ -");
  in.String("ca", etcd.ca);
  in.String("cert", etcd.cert);
  in.String("key", etcd.key);
  if (etcd.cert.empty() != etcd.key.empty()) in.Fail(etcd.key.empty() ? "cert" : "key", "needs the other of store.cert and store.key");
  const bool is_tls = std::all_of(etcd.endpoints.begin(), etcd.endpoints.end(), [](const auto& e) { return e.starts_with("https:"); });
  if (!etcd.ca.empty() && !is_tls) in.Fail("ca", "is of use with https:// only, but store.url has an http:// address");
  in.String("user", etcd.user);
  in.String("password_file", etcd.password_file);
  if (etcd.user.empty() != etcd.password_file.empty()) {
    in.Fail(etcd.user.empty() ? "password_file" : "user", "needs the other of store.user and store.password_file");
  }
  in.Number("compact_s", 0, 86'400, etcd.compact_s);
  in.RejectUnknown();
}

void ReadGroup(TableReader& in, const char* key, const std::string& standard, bool is_ipv6, GroupPrefix& out) {
  std::string text = standard;
  in.String(key, text);
  const auto prefix = ParseGroupPrefix(text);
  if (prefix && prefix->base.IsIpv6() == is_ipv6) out = *prefix;
  else in.Fail(key, std::string("must be an IPv") + (is_ipv6 ? "6" : "4") + " multicast prefix such as " + standard);
}

void ReadLocalAddress(TableReader& in, const char* key, bool is_ipv6, std::string& out) {
  in.StringOrEmpty(key, out);
  if (out.empty()) return;
  const auto address = IpAddress::Parse(out);
  if (!address || address->IsIpv6() != is_ipv6) in.Fail(key, std::string("must be an IPv") + (is_ipv6 ? "6" : "4") + " address, or empty");
}

void ReadDatapath(TableReader& in, Config& out) {
  in.Number("port", 1, 65535, out.port);
  in.String("pin_root", out.pin_root);
  in.Number("slots", 1, 1 << 22, out.slots);
  in.OneOf("family", out.addressing.family, {"auto", "ipv4", "ipv6"});
  ReadGroup(in, "group_prefix", "239.77.0.0/16", false, out.addressing.group);
  ReadGroup(in, "group_prefix6", "ff15::6d6c:0/112", true, out.addressing.group6);
  ReadLocalAddress(in, "local_address", false, out.local_address);
  ReadLocalAddress(in, "local_address6", true, out.local_address6);
  in.OneOf("multicast", out.job.multicast, {"auto", "on", "off"});
  in.RejectUnknown();
}

void ReadIface(TableReader& in, Config& out) {
  IfaceConfig iface;
  in.String("name", iface.name);
  in.String("match", iface.match);
  if (iface.name.empty() && iface.match.empty()) in.Fail("name", "is missing");
  if (!iface.name.empty() && !iface.match.empty()) in.Fail("match", "and iface.name are two ways to choose, give one");
  if (iface.name.find_first_of("^=,") != std::string::npos) in.Fail("name", "is one interface's name; for several: match = \"" + iface.name + "\"");
  if (!iface.match.empty()) {
    if (const auto list = IfnameList::Parse(iface.match); !list) in.Fail("match", "is " + list.error().message + "; " + list.error().hint);
  }
  in.OneOf("mode", iface.mode, {"native", "generic", "auto"});
  in.OneOf("share", iface.share, {"exclusive", "shared"});
  in.Bool("aggregator", iface.aggregator);
  in.Bool("detach_on_stop", iface.detach_on_stop);
  in.Rate("rate", iface.rate_bps);
  in.RejectUnknown();
  out.ifaces.push_back(std::move(iface));
}

void ReadSite(TableReader& in, Config& out) {
  in.String("rack", out.rack);
  in.Real("oversubscription", 0, 1000, out.oversubscription);
  in.RejectUnknown();
}

void ReadPriority(TableReader& in, PriorityConfig& out) {
  in.Numbers("dscp", 0, kDscpMax, out.dscp);
  in.OneOf("attach", out.attach, {"auto", "tcx", "clsact", "off"});
  in.RejectUnknown();
}

void ReadQuota(TableReader& in, Quota& out) {
  in.Number("jobs_per_user", 0, 1'000'000, out.jobs_per_user);
  in.Number("slots_per_job", 0, 1 << 22, out.slots_per_job);
  in.Number("slots_per_user", 0, 1 << 22, out.slots_per_user);
  in.RejectUnknown();
}

void ReadJob(TableReader& in, Config& config) {
  JobSpec& out = config.job;
  in.Number("slots", 1, 65536, out.slots);
  in.Number("classes", 1, MLNET_CLASSES_MAX, out.classes);
  in.String("shape", out.shape);
  in.Number("timeout_ms", 1, 86'400'000, out.timeout_ms);
  in.Number("deadline_ms", 0, 86'400'000, out.deadline_ms);
  in.Number("rto_min_us", 1, 60'000'000, out.rto_min_us);
  in.Number("rto_max_us", 1, 60'000'000, out.rto_max_us);
  in.Number("window_first", 1, 65536, out.window_first);
  in.Number("weight", 1, kWeightMax, out.weight);
  in.Real("ageing", 1, 1000, config.ageing);
  in.OneOf("order", out.order, {"fair", "shortest"});
  in.Number("lost_ms", 0, kLostMsMax, out.lost_ms);
  in.Number("ceiling", 0, MLNET_CLASSES_MAX - 1, out.ceiling);
  in.OneOf("require_mode", out.require_mode, {"any", "kernel"});
  in.Bool("mac", out.mac);
  in.RejectUnknown();
  if (auto ok = CheckShape(out.shape); !ok) in.Fail("shape", ok.error().message);
  else if (auto spec = CheckSpec(out); !spec) {
    const std::string& message = spec.error().message;  // begins with the key
    const size_t end = message.find(' ');
    in.Fail(message.substr(0, end).c_str(), message.substr(end + 1));
  }
}

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

}  // namespace

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-';
  }) && name != "." && name != "..";
}

Result<void> CheckShape(const std::string& shape) {
  if (shape == "auto" || plan::ShapeFromName(shape)) return {};
  return Err(ErrorCode::kInvalidArgument, fmt::format("is '{}', must be one of: auto, {}", shape, fmt::join(plan::ShapeNames(), ", ")));
}

Result<void> CheckSpec(const JobSpec& spec) {
  if (!std::has_single_bit(spec.slots) || spec.slots > 65536) {
    return Err(ErrorCode::kInvalidArgument, "slots is " + std::to_string(spec.slots) + ", must be a power of two up to 65536");
  }
  if (spec.classes < 1 || spec.classes > MLNET_CLASSES_MAX) {
    return Err(ErrorCode::kInvalidArgument, "classes is " + std::to_string(spec.classes) + ", must be 1 to 8");
  }
  if (spec.rto_min_us == 0 || spec.rto_min_us > spec.rto_max_us) {
    return Err(ErrorCode::kInvalidArgument, "rto_min_us must be at least 1 and at most rto_max_us");
  }
  if (auto ok = CheckShape(spec.shape); !ok) return Err(ErrorCode::kInvalidArgument, "shape " + ok.error().message);
  if (spec.weight < 1 || spec.weight > kWeightMax) {
    return Err(ErrorCode::kInvalidArgument, "weight is " + std::to_string(spec.weight) + ", must be 1 to 100");
  }
  if ((spec.lost_ms != 0 && spec.lost_ms < kLostMsMin) || spec.lost_ms > kLostMsMax) {
    return Err(ErrorCode::kInvalidArgument, "lost_ms is " + std::to_string(spec.lost_ms) + ", must be " + std::to_string(kLostMsMin) + " to " +
                                                std::to_string(kLostMsMax) + ", or 0: a silent rank or host is not lost");
  }
  if (spec.ceiling >= MLNET_CLASSES_MAX) {
    return Err(ErrorCode::kInvalidArgument, "ceiling is " + std::to_string(spec.ceiling) + ", must be 0 to 7");
  }
  if (spec.order != "fair" && spec.order != "shortest") {
    return Err(ErrorCode::kInvalidArgument, "order is '" + spec.order + "', must be one of: fair, shortest");
  }
  if (spec.require_mode != "any" && spec.require_mode != "kernel") {
    return Err(ErrorCode::kInvalidArgument, "require_mode is '" + spec.require_mode + "', must be one of: any, kernel");
  }
  if (spec.root != "reflect" && spec.root != "server") {
    return Err(ErrorCode::kInvalidArgument, "root is '" + spec.root + "', must be one of: reflect, server");
  }
  if (spec.root == "server" && spec.shape != "auto" && spec.shape != "star") {
    return Err(ErrorCode::kInvalidArgument, "shape '" + spec.shape + "' and root 'server' do not go together: a server has one tree",
               "leave shape at auto");
  }
  if (spec.multicast != "auto" && spec.multicast != "on" && spec.multicast != "off") {
    return Err(ErrorCode::kInvalidArgument, "multicast is '" + spec.multicast + "', must be one of: auto, on, off");
  }
  return {};
}

Result<Config> ParseConfig(std::string_view text, const std::string& source, const std::string& hostname) {
  toml::table root;
  try {
    // A key beyond ASCII without quotes is undefined behaviour in toml++ 3.3; with another character in its place it is an error.
    std::string ascii(text);
    std::replace_if(ascii.begin(), ascii.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
    root = toml::parse(ascii);
    root = toml::parse(text);
  } catch (const toml::parse_error& e) {
    const auto& at = e.source().begin;
    return Err(ErrorCode::kInvalidArgument, source + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) +
                                                ": " + std::string(e.description()));
  }
  Config config;
  config.host = hostname;
  config.port = MLNET_UDP_PORT;
  config.slots = MLNET_SLOTS_MAX;
  Error error{ErrorCode::kInvalidArgument, "", ""};
  TableReader file(&root, "", source, &error);
  TableReader daemon(file.Table("daemon"), "daemon", source, &error);
  ReadDaemon(daemon, config);
  TableReader store(file.Table("store"), "store", source, &error);
  ReadStore(store, config);
  TableReader datapath(file.Table("datapath"), "datapath", source, &error);
  ReadDatapath(datapath, config);
  for (const toml::table* table : file.Tables("iface")) {
    TableReader iface(table, "iface", source, &error);
    ReadIface(iface, config);
  }
  TableReader site(file.Table("site"), "site", source, &error);
  ReadSite(site, config);
  TableReader job(file.Table("job"), "job", source, &error);
  ReadJob(job, config);
  TableReader priority(file.Table("priority"), "priority", source, &error);
  ReadPriority(priority, config.priority);
  TableReader quota(file.Table("quota"), "quota", source, &error);
  ReadQuota(quota, config.quota);
  file.RejectUnknown();
  if (!error.message.empty()) return tl::make_unexpected(error);
  return config;
}

Result<Config> LoadConfig(const std::string& path) {
  const auto text = ReadFile(path, "name the file with --config");
  if (!text) return tl::make_unexpected(text.error());
  return ParseConfig(*text, path, HostName());
}

}  // namespace mlnet::control
