// SPDX-License-Identifier: Apache-2.0
#include "daemon/probe.h"

#include <linux/magic.h>
#include <sys/capability.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace mlnet::daemon {

using control::Json;

namespace {

Json Check(const char* name, bool ok, const std::string& detail, const char* hint) {
  return {{"name", name}, {"ok", ok}, {"detail", detail}, {"hint", ok ? "" : hint}};
}

bool HasCapability(cap_value_t value) {
  cap_flag_value_t is_set = CAP_CLEAR;
  cap_t caps = ::cap_get_proc();
  if (caps == nullptr) return false;
  ::cap_get_flag(caps, value, CAP_EFFECTIVE, &is_set);
  ::cap_free(caps);
  return is_set == CAP_SET;
}

constexpr std::pair<const char*, cap_value_t> kCapabilities[] = {
    {"CAP_BPF", CAP_BPF}, {"CAP_NET_ADMIN", CAP_NET_ADMIN}, {"CAP_PERFMON", CAP_PERFMON}};

bool IsBpfFs(const std::string& path) {
  struct statfs st;
  return ::statfs(path.c_str(), &st) == 0 && static_cast<unsigned long>(st.f_type) == BPF_FS_MAGIC;
}

}  // namespace

Result<void> CheckCapabilities() {
  std::string missing;
  for (const auto& [name, value] : kCapabilities) {
    if (!HasCapability(value)) missing += (missing.empty() ? "" : ", ") + std::string(name);
  }
  if (missing.empty()) return {};
  return Err(ErrorCode::kPermission, "mlnetd lacks " + missing, "run it as root, or grant these capabilities in its unit");
}

Json ProbeKernel(const std::string& pin_root, Json ifaces) {
  utsname kernel{};
  ::uname(&kernel);
  Json checks = Json::array();
  // The programs are loaded, or mlnetd would not run: what they need of the verifier is there.
  checks.push_back(Check("programs", true, "loaded and verified", ""));
  checks.push_back(Check("btf", ::access("/sys/kernel/btf/vmlinux", R_OK) == 0, "/sys/kernel/btf/vmlinux",
                         "bpftool shows maps without field names; nothing else is affected"));
  checks.push_back(Check("bpffs", IsBpfFs(pin_root), pin_root, "mount -t bpf bpf /sys/fs/bpf"));
  for (const auto& [name, value] : kCapabilities) {
    checks.push_back(Check(name, HasCapability(value), "effective", "add it to AmbientCapabilities= of mlnetd.service"));
  }
  for (const Json& iface : ifaces) {
    if (!iface.value("attached", false)) continue;
    const bool is_native = iface["mode"] == "native";
    checks.push_back(Check(("native XDP on " + iface["name"].get<std::string>()).c_str(), is_native,
                           iface.value("driver", "") + ", " + iface.value("why", ""), "the driver has no native XDP"));
  }
  return {{"schema", "mlnet.probe/1"}, {"kernel", kernel.release}, {"checks", checks}, {"ifaces", std::move(ifaces)}};
}

}  // namespace mlnet::daemon
