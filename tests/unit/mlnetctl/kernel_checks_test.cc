// SPDX-License-Identifier: Apache-2.0
#include "mlnetctl/kernel_checks.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace mlnet::ctl {
namespace {

/// A machine as /proc and /sys show it, in which everything is fine until a test changes it.
class KernelChecks : public testing::Test {
 protected:
  KernelChecks() {
    char folder[] = "/tmp/mlnetctl-kernel-XXXXXX";
    root_ = ::mkdtemp(folder);
    Write("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
    Write("sys/kernel/btf/vmlinux", "");
    Write("proc/kallsyms", "0000 T start\n0000 T bpf_xdp_link_attach\n");
    Write("proc/sys/net/core/bpf_jit_enable", "1\n");
    Write("proc/self/mounts", "proc /proc proc rw 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n");
    Write("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n");
    Write("proc/self/limits", "Max locked memory         65536                65536                bytes\n");
  }
  ~KernelChecks() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text;
  }
  void Remove(const std::string& path) { std::filesystem::remove(root_ + "/" + path); }
  Check Find(const std::string& name) {
    for (const Check& check : CheckKernel(root_)) {
      if (check.name == name) return check;
    }
    ADD_FAILURE() << "no check named " << name;
    return {};
  }
  /// Exactly one check fails, with a hint.
  void ExpectOnly(const std::string& name, ExitCode exit_code) {
    for (const Check& check : CheckKernel(root_)) {
      EXPECT_EQ(check.is_ok, check.name != name) << check.name << ": " << check.detail;
      EXPECT_EQ(check.hint.empty(), check.is_ok) << check.name;
    }
    EXPECT_EQ(Find(name).exit_code, exit_code);
  }

  std::string root_;
};

TEST_F(KernelChecks, GoodMachinePassesAll) {
  for (const Check& check : CheckKernel(root_))
    EXPECT_TRUE(check.is_ok) << check.name << ": " << check.detail;
}

TEST_F(KernelChecks, OldKernel) {
  Write("proc/sys/kernel/osrelease", "5.15.0\n");
  ExpectOnly("kernel", kExitUnsupported);
}

TEST_F(KernelChecks, MajorVersionCountsBeforeMinor) {
  Write("proc/sys/kernel/osrelease", "10.0.3\n");
  EXPECT_TRUE(Find("kernel").is_ok);
}

TEST_F(KernelChecks, NoBtf) {
  Remove("sys/kernel/btf/vmlinux");
  ExpectOnly("btf", kExitUnsupported);
}

TEST_F(KernelChecks, NoLink) {
  Write("proc/kallsyms", "0000 T start\n");
  ExpectOnly("bpf_link", kExitUnsupported);
}

TEST_F(KernelChecks, HiddenSymbolsAreJudgedByVersion) {
  Remove("proc/kallsyms");
  EXPECT_TRUE(Find("bpf_link").is_ok);
  Write("proc/sys/kernel/osrelease", "5.8.0\n");
  EXPECT_FALSE(Find("bpf_link").is_ok);
}

TEST_F(KernelChecks, JitOff) {
  Write("proc/sys/net/core/bpf_jit_enable", "0\n");
  ExpectOnly("jit", kExitFailed);
}

TEST_F(KernelChecks, BpffsElsewhere) {
  Write("proc/self/mounts", "bpf /mnt bpf rw 0 0\n");
  ExpectOnly("bpffs", kExitFailed);
}

TEST_F(KernelChecks, NamesMissingCapabilities) {
  // All but bit 39 (CAP_BPF) and bit 12 (CAP_NET_ADMIN).
  Write("proc/self/status", "CapEff:\t0000017fffffefff\n");
  ExpectOnly("capabilities", kExitPermission);
  EXPECT_EQ(Find("capabilities").detail, "missing: CAP_BPF CAP_NET_ADMIN");
}

TEST_F(KernelChecks, MemlockMattersBefore511) {
  Write("proc/sys/kernel/osrelease", "5.10.0\n");
  EXPECT_FALSE(Find("memlock").is_ok);
  Write("proc/self/limits", "Max locked memory         unlimited            unlimited            bytes\n");
  EXPECT_TRUE(Find("memlock").is_ok);
}

}  // namespace
}  // namespace mlnet::ctl
