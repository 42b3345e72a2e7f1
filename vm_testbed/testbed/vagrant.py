# SPDX-License-Identifier: Apache-2.0
"""The testbed under Vagrant and libvirt. Where no libvirtd runs, one is started, and ended again; what libvirt changes on the host
(forwarding, firewall chains) is put back when its last network is gone. A run that was killed is cleared away by the next one."""
import os
import pathlib
import re
import shutil
import subprocess
import time

from . import accel
from .errors import TestbedError, require
from .machine import Machine
from .store import EtcdStore
from .topology import SWITCH

HERE = pathlib.Path(__file__).resolve().parents[1]
URI = "qemu:///system"
PREFIX = "mlnet-vm-"  # of all domains and networks, as the Vagrantfile names them
BOOT_LIMIT_S = 300
MANAGEMENT_ADDRESS = "10.78.0.1"  # this machine's, in the Vagrantfile's management network
FORWARD = pathlib.Path("/proc/sys/net/ipv4/ip_forward")


class VagrantMachines:
    name = "vagrant"
    queues = 2

    def __init__(self, topology, topology_file, box, folder, state, memory_mb):
        """`state`: a folder that outlives the run: what Vagrant knows of its machines."""
        for tool in ("vagrant", "virsh", "libvirtd"):
            require(shutil.which(tool), f"{tool} is missing: tools/install-deps --vagrant, or use --qemu")
        self.topology, self.box, self.folder = topology, box, folder
        self.accel = accel.choose(box)
        self.environment = os.environ | {"VAGRANT_CWD": str(HERE), "VAGRANT_DOTFILE_PATH": str(state), "VAGRANT_DEFAULT_PROVIDER": "libvirt",
                                         "VAGRANT_CHECKPOINT_DISABLE": "1", "MLNET_VM_TOPOLOGY": str(topology_file.resolve()),
                                         "MLNET_VM_BOX": str(box), "MLNET_VM_ACCEL": self.accel, "MLNET_VM_MEMORY": str(memory_mb)}
        self.machines, self.daemons, self.host_before, self.store = {}, [], None, None

    def up(self):
        self.host_before = HostNetwork.read()
        self._start_libvirt()
        self._clear()
        self._vagrant("up", "--parallel")
        self.store = EtcdStore(MANAGEMENT_ADDRESS, MANAGEMENT_ADDRESS, self.folder)
        ports = self._ssh_ports()
        for name in [SWITCH] + [host.name for host in self.topology.hosts]:
            self.machines[name] = Machine(name, *ports[name], self.box / "ssh_key", self.folder)
            self.wait_for(name)
        return self.machines

    def wait_for(self, name):
        self.machines[name].wait_for_ssh(BOOT_LIMIT_S)

    def reset(self, name):
        """Power off and on again: nothing is shut down."""
        self._virsh("reset", PREFIX + name)
        self.machines[name].disconnect()

    def down(self):
        for machine in self.machines.values():
            machine.disconnect()
        if self.store:
            self.store.stop()
        if self.host_before is None:
            return
        try:
            self._clear()
        finally:
            for daemon in self.daemons:
                daemon.terminate()
                daemon.wait()
            self.host_before.restore()

    def _start_libvirt(self):
        if self._virsh("version", check=False).returncode == 0:
            return
        require(not pathlib.Path("/run/systemd/system").exists(), "libvirtd does not run: systemctl start libvirtd, or use --qemu")
        for name in ("virtlogd", "libvirtd"):
            log = open(self.folder / f"{name}.log", "wb")
            self.daemons.append(subprocess.Popen([name], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                 start_new_session=True))  # Ctrl-C is not for them: they are needed to clear away
        deadline = time.monotonic() + 30
        while self._virsh("version", check=False).returncode != 0:
            require(time.monotonic() < deadline, f"libvirtd does not answer, see {self.folder}/libvirtd.log")
            time.sleep(0.3)

    def _clear(self):
        """Removes whatever bears this testbed's names, also what a killed run left."""
        self._vagrant("destroy", "--force", check=False)
        for kind, names in (("", self._names("list")), ("net-", self._names("net-list"))):
            for name in names:
                self._virsh(f"{kind}destroy", name, check=False)
                self._virsh(f"{kind}undefine", name, *(["--remove-all-storage"] if not kind else []), check=False)
        for line in self._virsh("vol-list", "default", check=False).stdout.splitlines():
            if re.match(r"\s*mlnet-(vm|testbed)-", line):
                self._virsh("vol-delete", line.split()[0], "--pool", "default", check=False)

    def _names(self, what):
        return [name for name in self._virsh(what, "--all", "--name").stdout.split() if name.startswith(PREFIX)]

    def _ssh_ports(self):
        """{machine: (address, port)}"""
        said = self._vagrant("ssh-config").stdout
        return {name: (host, port) for name, host, port in re.findall(r"^Host (\S+)\n\s+HostName (\S+)\n(?:\s+User .*\n)\s+Port (\d+)", said, re.M)}

    def _virsh(self, *words, check=True):
        done = subprocess.run(["virsh", "-q", "-c", URI, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if check and done.returncode != 0:
            raise TestbedError(f"virsh {' '.join(words)}: {done.stderr.strip()}")
        return done

    def _vagrant(self, *words, check=True):
        done = subprocess.run(["vagrant", *words], env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with open(self.folder / "vagrant.log", "a", encoding="utf-8") as log:
            log.write(f"$ vagrant {' '.join(words)}\n{done.stdout}{done.stderr}")
        if check and done.returncode != 0:
            raise TestbedError(f"vagrant {' '.join(words)} failed, see {self.folder}/vagrant.log:\n{done.stderr[-2000:]}")
        return done


class HostNetwork:
    """What libvirt changes on the host for networks, and how it was."""

    def __init__(self, forward, rules):
        self.forward, self.rules = forward, rules

    @classmethod
    def read(cls):
        return cls(FORWARD.read_text(encoding="ascii"), {tool: cls._rules(tool) for tool in ("iptables", "ip6tables")})

    @staticmethod
    def _rules(tool):
        """The rules and chains that bear libvirt's name, by table."""
        if not shutil.which(f"{tool}-save"):
            return None
        saved = subprocess.run([f"{tool}-save"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        rules, table = [], ""
        for line in saved.splitlines():
            if line.startswith("*"):
                table = line[1:]
            elif "LIBVIRT_" in line:
                rules.append((table, line))
        return rules

    def restore(self):
        """Only where libvirt had nothing before: else its networks are somebody else's, too."""
        for tool, before in self.rules.items():
            if before is None or before:
                continue
            rules = self._rules(tool)
            for table, line in rules:
                if line.startswith("-A"):
                    subprocess.run([tool, "-t", table, "-D", *line.split()[1:]], check=False)
            for table, line in rules:
                if line.startswith(":"):
                    subprocess.run([tool, "-t", table, "-X", line[1:].split()[0]], check=False)
        if not any(self.rules.values()):
            FORWARD.write_text(self.forward, encoding="ascii")
