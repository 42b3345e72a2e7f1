// SPDX-License-Identifier: Apache-2.0
#include "mlnetctl/kernel_checks.h"

#include <fmt/format.h>
#include <linux/capability.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace mlnet::ctl {
namespace {

struct KernelVersion {
  int major = 0;
  int minor = 0;
  bool AtLeast(int want_major, int want_minor) const {
    return major > want_major || (major == want_major && minor >= want_minor);
  }
};

std::optional<std::string> ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line)) return std::nullopt;
  return line;
}

/// The first line of a file that starts with `prefix`.
std::optional<std::string> FindLine(const std::string& path, const std::string& prefix) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(prefix)) return line;
  }
  return std::nullopt;
}

KernelVersion VersionOf(const std::string& release) {
  KernelVersion version;
  if (std::sscanf(release.c_str(), "%d.%d", &version.major, &version.minor) != 2) return {};
  return version;
}

Check CheckVersion(const std::string& release) {
  const bool ok = VersionOf(release).AtLeast(6, 1);
  return {"kernel", ok, release.empty() ? "unknown" : release, ok ? "" : "use Linux 6.1 or newer"};
}

Check CheckBtf(const std::string& root) {
  std::error_code error;
  const bool ok = std::filesystem::exists(root + "/sys/kernel/btf/vmlinux", error);
  return {"btf", ok, ok ? "/sys/kernel/btf/vmlinux" : "no /sys/kernel/btf/vmlinux",
          ok ? "" : "use a kernel built with CONFIG_DEBUG_INFO_BTF=y (Debian's is)"};
}

/// bpf_link for XDP came with Linux 5.9; the symbol decides where a vendor has added or removed it.
Check CheckLink(const std::string& root, const std::string& release) {
  std::ifstream symbols(root + "/proc/kallsyms");
  size_t lines = 0;
  for (std::string line; std::getline(symbols, line); ++lines) {
    if (line.find(" bpf_xdp_link_attach") != std::string::npos)
      return {"bpf_link", true, "bpf_xdp_link_attach", ""};
  }
  const bool ok = lines == 0 && VersionOf(release).AtLeast(5, 9);
  return {"bpf_link", ok,
          lines == 0 ? "no symbol table; judged by the kernel's version" : "no bpf_xdp_link_attach",
          ok ? "" : "use Linux 5.9 or newer with CONFIG_BPF_SYSCALL=y and CONFIG_NET=y"};
}

Check CheckJit(const std::string& root) {
  const std::string path = root + "/proc/sys/net/core/bpf_jit_enable";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return {"jit", false, "no /proc/sys/net/core/bpf_jit_enable", "use a kernel built with CONFIG_BPF_JIT=y"};
  }
  const auto value = ReadLine(path);
  if (!value) return {"jit", true, "compiled in (root may read whether it is on)", ""};
  const bool ok = *value != "0";
  return {"jit", ok, "bpf_jit_enable = " + *value, ok ? "" : "sysctl -w net.core.bpf_jit_enable=1",
          kExitFailed};
}

Check CheckBpffs(const std::string& root) {
  std::ifstream mounts(root + "/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string device, where, type;
    fields >> device >> where >> type;
    if (type == "bpf" && where == "/sys/fs/bpf") return {"bpffs", true, "mounted at /sys/fs/bpf", ""};
  }
  return {"bpffs", false, "not mounted at /sys/fs/bpf", "mount -t bpf bpf /sys/fs/bpf", kExitFailed};
}

Check CheckCapabilities(const std::string& root) {
  static constexpr struct {
    int bit;
    const char* name;
  } kNeeded[] = {{CAP_BPF, "CAP_BPF"},
                 {CAP_NET_ADMIN, "CAP_NET_ADMIN"},
                 {CAP_PERFMON, "CAP_PERFMON"}};
  const auto line = FindLine(root + "/proc/self/status", "CapEff:");
  const uint64_t effective = line ? std::strtoull(line->c_str() + std::strlen("CapEff:"), nullptr, 16) : 0;
  std::string missing;
  for (const auto& capability : kNeeded) {
    if (effective >> capability.bit & 1) continue;
    missing += (missing.empty() ? "" : " ") + std::string(capability.name);
  }
  if (missing.empty()) return {"capabilities", true, "CAP_BPF CAP_NET_ADMIN CAP_PERFMON", ""};
  return {"capabilities", false, "missing: " + missing, "run mlnetd as root or from its systemd unit",
          kExitPermission};
}

/// Before Linux 5.11 maps were charged to RLIMIT_MEMLOCK; since then to the memory cgroup.
Check CheckMemlock(const std::string& root, const std::string& release) {
  if (VersionOf(release).AtLeast(5, 11))
    return {"memlock", true, "maps are charged to the memory cgroup", ""};
  const auto line = FindLine(root + "/proc/self/limits", "Max locked memory");
  const bool ok = line && line->find("unlimited") != std::string::npos;
  return {"memlock", ok, ok ? "unlimited" : "RLIMIT_MEMLOCK is limited",
          ok ? "" : "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit", kExitPermission};
}

}  // namespace

std::string KernelRelease(const std::string& root) {
  return ReadLine(root + "/proc/sys/kernel/osrelease").value_or("");
}

std::vector<Check> CheckKernel(const std::string& root) {
  const std::string release = KernelRelease(root);
  return {CheckVersion(release),  CheckBtf(root),   CheckLink(root, release),
          CheckJit(root),         CheckBpffs(root), CheckMemlock(root, release),
          CheckCapabilities(root)};
}

}  // namespace mlnet::ctl
