# SPDX-License-Identifier: Apache-2.0
"""What makes a cluster of mlnet of machines that have booted: the network, the packages, the daemons; and what it says of itself."""
import concurrent.futures
import contextlib
import json
import re

from .errors import TestbedError, require
from .topology import SWITCH, SWITCH_ADDRESS, netem

NIC = "eth1"
# What goes through the switch's memory: 1000 full frames a port.
QUEUE_PACKETS = 1000


class Cluster:
    def __init__(self, provider, topology, packages, rank_program, folder):
        """`packages`: a function of a host."""
        self.provider, self.topology, self.packages, self.rank_program, self.folder = provider, topology, packages, rank_program, folder
        self.machines = {}

    @property
    def switch(self):
        return self.machines[SWITCH]

    def machine(self, host):
        return self.machines[host.name]

    def on_all(self, function, hosts=None):
        """function(host) for all hosts at once; results in the hosts' order."""
        hosts = self.topology.hosts if hosts is None else hosts
        with concurrent.futures.ThreadPoolExecutor(len(hosts)) as pool:
            return list(pool.map(function, hosts))

    def up(self):
        self.machines = self.provider.up()
        self._set_up_switch()
        self.on_all(self._set_up_host)

    def _set_up_switch(self):
        lines = ["hostname switch", "modprobe -a bridge sch_netem ifb act_mirred cls_matchall", "ip link add br0 type bridge mcast_snooping 0",
                 f"ip addr add {SWITCH_ADDRESS}/24 dev br0", "ip link set br0 up"]
        for rack in self.topology.racks:  # a bridge of its own, and its uplink: u-RACK on its side, p-RACK on the core's
            lines += [f"ip link add b-{rack.name} type bridge mcast_snooping 0", f"ip link set b-{rack.name} up",
                      f"ip link add p-{rack.name} mtu {self.topology.mtu} type veth peer name u-{rack.name} mtu {self.topology.mtu}",
                      f"ip link set p-{rack.name} master br0 up txqueuelen {QUEUE_PACKETS}", f"ip link set u-{rack.name} master b-{rack.name} up txqueuelen {QUEUE_PACKETS}"]
        for number, host in enumerate(self.topology.hosts, start=1):
            port, ifb, bridge = f"eth{number}", f"ifb{number}", f"b-{host.rack}" if host.rack else "br0"
            lines += [f"ip link show {ifb} >/dev/null 2>&1 || ip link add {ifb} type ifb", f"ip link set {ifb} up txqueuelen {QUEUE_PACKETS}",
                      f"ip link set {port} master {bridge} mtu {self.topology.mtu} up", f"tc qdisc add dev {port} clsact",
                      f"tc filter add dev {port} ingress pref 9 matchall action mirred egress redirect dev {ifb}"]
        self.switch.run("\n".join(lines))
        self.disturb()

    def disturb(self, faults=None):
        """Links as the topology has them, or all hosts' with these faults (as it writes them: {"tx": ..., "rx": ...})."""
        lines = []
        for rack in self.topology.racks:
            for device, way in ((f"p-{rack.name}", "rx"), (f"u-{rack.name}", "tx")):
                lines.append(f"tc qdisc replace dev {device} root handle 1: netem limit {QUEUE_PACKETS} {netem(rack.faults[way], rack.rate_bps[way])}")
        for number, host in enumerate(self.topology.hosts, start=1):
            both = faults or host.faults
            for device, way in ((f"eth{number}", "rx"), (f"ifb{number}", "tx")):
                lines.append(f"tc qdisc replace dev {device} root handle 1: netem limit {QUEUE_PACKETS} {netem(both[way], host.rate_bps)}")
        self.switch.run("\n".join(lines))

    def disturbed(self):
        """What the links have done so far: {host: {"tx"|"rx": {"packets", "drops"}}}."""
        lines = [f"tc -s -j qdisc show dev {device}{number} root" for number in range(1, len(self.topology.hosts) + 1) for device in ("eth", "ifb")]
        said = [json.loads(line)[0] for line in self.switch.run("\n".join(lines)).splitlines()]
        short = [{"packets": one["packets"], "drops": one["drops"]} for one in said]
        return {host.name: {"rx": short[2 * i], "tx": short[2 * i + 1]} for i, host in enumerate(self.topology.hosts)}

    def disturbed_since(self, before):
        now = self.disturbed()
        return {host: {way: {key: now[host][way][key] - before[host][way][key] for key in now[host][way]} for way in now[host]} for host in now}

    def uplink_bytes(self, rack):
        """That the rack has sent towards the core so far."""
        return json.loads(self.switch.run(f"tc -s -j qdisc show dev u-{rack.name} root"))[0]["bytes"]

    @contextlib.contextmanager
    def counting_tags(self, priority):
        """Inside, the switch counts frames with a VLAN tag of this 802.1p priority; gives a function: packets by host, of what it sends."""
        ports = {host.name: f"eth{number}" for number, host in enumerate(self.topology.hosts, start=1)}
        self.switch.run("modprobe cls_flower\n" + "\n".join(
            f"tc filter add dev {port} ingress pref 1 protocol 802.1q flower vlan_prio {priority} action continue" for port in ports.values()))

        def count():
            lines = [f"tc -s -j filter show dev {port} ingress pref 1" for port in ports.values()]
            said = [json.loads(line) for line in self.switch.run("\n".join(lines)).splitlines()]
            return {name: sum(action["stats"]["packets"] for entry in one for action in entry.get("options", {}).get("actions", []))
                    for name, one in zip(ports, said)}

        try:
            yield count
        finally:
            self.switch.run("\n".join(f"tc filter del dev {port} ingress pref 1" for port in ports.values()))

    def xdp_filter_hits(self, host):
        """Packets to the port that xdp-filter drops, as it counted them."""
        said = self.machine(host).run("xdp-filter status", check=False)  # it fails for want of the maps of features that are not loaded
        found = re.search(r"^\s*9999\s.*?(\d+)\s*$", said, re.M)
        require(found, f"{host.name}: xdp-filter does not know its port:\n{said}")
        return int(found.group(1))

    def _set_up_host(self, host):
        machine = self.machine(host)
        machine.put("/opt/testbed", {path.name: path for path in self.packages(host)} | {"mlnet-vm-rank": self.rank_program})
        machine.put("/etc/testbed", {"scenario": f"#!/bin/sh\nip link set {NIC} up mtu {self.topology.mtu}\nip addr add {host.address}/24 dev {NIC}\n".encode()})
        machine.run(f"hostname {host.name}; echo {host.name} >/etc/hostname; echo '{host.address} {host.name}' >>/etc/hosts\n"
                    "chmod +x /etc/testbed/scenario; /etc/testbed/scenario")
        self.install(host)

    def install(self, host):
        """The configuration first: the daemon that the package starts is then the wanted one, and loads its programs once."""
        self._write_configuration(host)
        self.machine(host).run("export DEBIAN_FRONTEND=noninteractive; dpkg --force-confold --force-unsafe-io --install /opt/testbed/*.deb")
        self.wait_until_ok(host)

    def configure(self, host, iface=""):
        """Changes the daemon's configuration and starts it anew; back when it is ready."""
        self._write_configuration(host, iface)
        self.machine(host).run("systemctl restart mlnetd || true")  # where the store is slow to answer, systemd tries again
        self.wait_until_ok(host)

    def _write_configuration(self, host, iface=""):
        iface = iface or f'[[iface]]\nname = "{NIC}"\nmode = "native"\n'
        rate = f'rate = "{host.rate_bps}bit"\n' if host.rate_bps else ""
        site = f'[site]\nrack = "{host.rack}"\noversubscription = {self.topology.oversubscription_of(host.rack):g}\n' if host.rack else ""
        text = f'[store]\nurl = "etcd:{self.provider.store.url}"\n{site}{iface}aggregator = {str(host.is_aggregator).lower()}\n{rate}'
        self.machine(host).put("/etc/mlnet", {"mlnetd.toml": text.encode()})

    def wait_until_ok(self, host, limit_s=120):
        done = self.machine(host).result(f"mlnetctl status --wait {limit_s}", limit_s + 60)
        if done.returncode != 0:
            log = self.machine(host).run("journalctl -u mlnetd --no-pager | tail -n 30", check=False)
            raise TestbedError(f"{host.name}: mlnetd is not well: {done.stdout}{done.stderr}\n{log}")

    def iface(self, host, name=NIC):
        """What the daemon says of the host's NIC."""
        said = json.loads(self.machine(host).run("mlnetctl -j iface list"))
        found = [one for one in said["ifaces"] if one["name"] == name]
        require(found, f"{host.name}: mlnetd knows no {name}: {said}")
        return found[0]

    def describe(self, host):
        """Facts for the report: kernel, driver, mode, and what the kernel's log says about XDP."""
        iface, machine = self.iface(host), self.machine(host)
        kernel, kind, queues = machine.run(f"uname -rm; ls -d /sys/class/net/{NIC}/queues/tx-* | wc -l").split()
        notes = [line.split("] ", 1)[-1] for line in machine.run("dmesg | grep -i xdp || true").splitlines()]
        return {"name": host.name, "role": "aggregator" if host.is_aggregator else "worker", "address": host.address, "kernel": kernel,
                "machine": kind, "driver": iface["driver"], "mode": iface["mode"], "via": iface["via"], "why": iface["why"], "queues": int(queues), "kernel_log": notes}

    def verdicts(self, host):
        """How many packets ended how in this host's XDP programs, of those that did."""
        said = json.loads(self.machine(host).run("mlnetctl -j stats"))["verdicts"]
        counts = {name: one["count"] if isinstance(one, dict) else one for name, one in said.items()}
        return {name: count for name, count in counts.items() if count}

    def collect_logs(self):
        def collect(machine):
            for log, command in (("journal", "journalctl --no-pager -b"), ("dmesg", "dmesg")):
                try:
                    said = machine.get("|" + command)
                except Exception as error:  # a machine that is dead has no more to say, and the others have
                    said = f"{error}\n".encode()
                (self.folder / f"{machine.name}.{log}.log").write_bytes(said)

        if self.machines:
            with concurrent.futures.ThreadPoolExecutor(len(self.machines)) as pool:
                list(pool.map(collect, self.machines.values()))
