# SPDX-License-Identifier: Apache-2.0
"""Which accelerator runs a guest here. /dev/kvm opens on machines where no guest boots with it, so a small one is booted."""
import os
import subprocess

from .errors import TestbedError

VARIABLE = "MLNET_VM_ACCEL"
PROBE_LIMIT_S = 8  # a guest on KVM is through in a second or two


def choose(box):
    chosen = os.environ.get(VARIABLE, "")
    if chosen not in ("", "kvm", "tcg"):
        raise TestbedError(f"{VARIABLE} is kvm or tcg, not '{chosen}'")
    return chosen or ("kvm" if os.access("/dev/kvm", os.R_OK | os.W_OK) and boots_on_kvm(box) else "tcg")


def boots_on_kvm(box):
    """The testbed's kernel with a program that ends at once: the kernel then panics, and QEMU ends."""
    command = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-accel", "kvm", "-cpu", "host", "-m", "256",
               "-kernel", box / "vmlinuz", "-initrd", box / "initrd.img", "-append", "console=ttyS0 rdinit=/bin/true panic=-1", "-no-reboot",
               "-serial", "stdio"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PROBE_LIMIT_S)
    except subprocess.TimeoutExpired:
        return False
    return b"Attempted to kill init" in done.stdout


def cpu_arguments(accel):
    # Without cmpxchg16b: as QEMU 7.2 emulates it, kernel 6.12 faults at its first allocations.
    return ["-accel", "kvm", "-cpu", "host"] if accel == "kvm" else ["-accel", "tcg", "-cpu", "qemu64,-cx16"]
