# SPDX-License-Identifier: Apache-2.0
"""The testbed in plain QEMU: a process per machine and a pair of datagram sockets per cable. No privileges, nothing on the
host but files below one folder; all processes end with this one, however it ends."""
import contextlib
import ctypes
import dataclasses
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from . import accel
from .errors import TestbedError, require
from .machine import Machine
from .store import EtcdStore, free_port
from .topology import SWITCH

PR_SET_PDEATHSIG = 1
# no_timer_check: on a busy machine an emulated timer is late, and the kernel would give up. Units: what Vagrant's way of logging in
# needs and this one does not.
KERNEL = ("root=/dev/vda1 rw net.ifnames=0 quiet mitigations=off no_timer_check testbed.eth0=10.0.2.15/24 " +
          " ".join(f"systemd.mask={unit}" for unit in ("systemd-networkd.service", "systemd-networkd.socket", "dbus.service", "dbus.socket",
                                                       "systemd-udevd.service", "systemd-udev-trigger.service", "systemd-udevd-kernel.socket",
                                                       "systemd-udevd-control.socket", "kmod-static-nodes.service")))
BOOT_LIMIT_S = 420


@dataclasses.dataclass
class Board:
    box: pathlib.Path
    console: str
    command: list


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class QemuMachines:
    name = "qemu"
    # A socket is one queue, and the virtual NIC has no offloads.
    queues = 1

    def __init__(self, topology, box, folder, memory_mb):
        self.topology, self.folder, self.memory_mb = topology, folder, memory_mb
        self.accel = accel.choose(box)
        self.x86 = Board(box, "ttyS0", ["qemu-system-x86_64", *accel.cpu_arguments(self.accel)])
        self.boards = {}  # of machines that are no x86
        self.machines, self.processes, self.store = {}, {}, None

    def use_arm64_aggregators(self, box):
        """Always emulated; the processor is that of a BlueField-2."""
        require(shutil.which("qemu-system-aarch64"), "qemu-system-aarch64 is missing: tools/install-deps --arm64")
        arm64 = Board(box, "ttyAMA0", ["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72"])
        self.boards = dict.fromkeys([host.name for host in self.topology.aggregators], arm64)

    def up(self):
        self.store = EtcdStore("127.0.0.1", "10.0.2.2", self.folder, end_with_parent)  # as QEMU's user network has it
        cables = [self._cable(number, host) for number, host in enumerate(self.topology.hosts)]
        self.start(SWITCH, [(plug, f"02:4d:4c:01:00:{number:02x}") for number, (_, plug) in enumerate(cables)])
        for host, (plug, _) in zip(self.topology.hosts, cables):
            self.start(host.name, [(plug, host.mac)])
        for name in self.machines:
            self.wait_for(name)
        return self.machines

    def wait_for(self, name):
        self.machines[name].wait_for_ssh(BOOT_LIMIT_S, lambda: self.processes[name].poll() is None)

    def reset(self, name):
        """Power off and on again: nothing is shut down."""
        self._qmp(name, "system_reset")
        self.machines[name].disconnect()

    def down(self):
        for machine in self.machines.values():
            machine.disconnect()
        for process in self.processes.values():
            process.kill()
            process.wait()
        if self.store:
            self.store.stop()
        for disk in self.folder.glob("*.qcow2"):
            disk.unlink()

    def _cable(self, number, host):
        """The arguments of a -netdev for both ends: the host's, the switch's."""
        ends = [str(self.folder / f"{number}.{end}") for end in ("host", "switch")]  # short: a socket's path has 108 characters
        return [f"dgram,local.type=unix,local.path={here},remote.type=unix,remote.path={there}" for here, there in (ends, ends[::-1])]

    def start(self, name, plugs):
        """A machine that boots; its NICs after eth0: (what -netdev says of it, MAC address)."""
        board, disk, port = self.boards.get(name, self.x86), self.folder / f"{name}.qcow2", free_port("127.0.0.1")
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", board.box / "disk.raw", disk], check=True)
        command = [*board.command, "-name", name, "-nodefaults", "-no-user-config", "-display", "none", "-m", str(self.memory_mb), "-smp", "1",
                   "-kernel", board.box / "vmlinuz", "-initrd", board.box / "initrd.img", "-append", f"{KERNEL} console={board.console}", "-serial", f"file:{self.folder}/{name}.console.log",
                   "-drive", f"file={disk},if=virtio,format=qcow2,cache=unsafe", "-object", "rng-random,id=random,filename=/dev/urandom",
                   "-device", "virtio-rng-pci,rng=random", "-qmp", f"unix:{self.folder}/{name}.qmp,server=on,wait=off",
                   "-netdev", f"user,id=eth0,hostfwd=tcp:127.0.0.1:{port}-:22", "-device", "virtio-net-pci,netdev=eth0,romfile="]
        for number, (plug, mac) in enumerate(plugs, start=1):
            command += ["-netdev", f"{plug},id=eth{number}", "-device", f"virtio-net-pci,netdev=eth{number},mac={mac},romfile="]
        with open(self.folder / f"{name}.qemu.log", "wb") as log:
            self.processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_parent)
        self.machines[name] = Machine(name, "127.0.0.1", port, board.box / "ssh_key", self.folder)

    def _qmp(self, name, command):
        deadline = time.monotonic() + 10
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as monitor:
            monitor.settimeout(10)
            monitor.connect(str(self.folder / f"{name}.qmp"))
            stream = monitor.makefile("rw")
            stream.readline()  # the greeting
            for words in ("qmp_capabilities", command):
                stream.write(json.dumps({"execute": words}) + "\n")
                stream.flush()
                while "return" not in (answer := json.loads(stream.readline())):
                    if "error" in answer or time.monotonic() > deadline:
                        raise TestbedError(f"{name}: QEMU refuses {words}: {answer}")
