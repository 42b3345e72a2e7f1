# SPDX-License-Identifier: Apache-2.0
"""The topology file, as mlnet-lab reads it: the same file makes a lab of namespaces or a testbed of virtual machines."""
import dataclasses
import json
import subprocess

from .errors import TestbedError

SWITCH = "switch"
SWITCH_ADDRESS = "10.77.0.254"


@dataclasses.dataclass
class Host:
    name: str
    is_aggregator: bool
    address: str
    mac: str
    rate_bps: int
    faults: dict  # "tx": what the host sends, "rx": what it receives
    rack: str  # "": plugged into the core


@dataclasses.dataclass
class Rack:
    """A switch with one uplink to the core; its rates and faults are those of the uplink."""
    name: str
    rate_bps: dict  # "tx": towards the core, "rx"
    faults: dict


@dataclasses.dataclass
class Topology:
    hosts: list
    racks: list
    mtu: int
    seed: int

    @property
    def workers(self):
        return [host for host in self.hosts if not host.is_aggregator]

    @property
    def aggregators(self):
        return [host for host in self.hosts if host.is_aggregator]

    def oversubscription_of(self, name):
        """How much faster a rack's hosts are than its uplink, all together; 0: not known, or no rack."""
        for rack in self.racks:
            rates, uplink = [host.rate_bps for host in self.hosts if host.rack == name], min(rack.rate_bps.values())
            if rack.name == name and uplink and all(rates):
                return sum(rates) / uplink
        return 0


def load(mlnet_lab, path):
    done = subprocess.run([mlnet_lab, "-j", "topology", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise TestbedError(f"topology: {done.stderr.strip()}")
    said = json.loads(done.stdout)
    if said["ipv6"]:
        raise TestbedError(f"topology: {path} has ipv6, which only mlnet-lab builds")
    hosts = [Host(h["name"], h["role"] == "aggregator", h["address"], h["mac"], h["rate_bps"], h["faults"], h["rack"]) for h in said["hosts"]]
    racks = [Rack(r["name"], {"tx": r["up_bps"] or 0, "rx": r["down_bps"] or 0}, r["faults"]) for r in said["racks"]]
    return Topology(hosts, racks, said["mtu"], said["seed"])


def netem(faults, rate_bps):
    """netem's arguments for one direction of a link. Reordering alone means, as in the lab, frames held for 500 us."""
    words, delay_us, reorder = [], faults["delay_us"], faults["reorder_ppm"] / 10_000
    if reorder and not delay_us:
        delay_us, reorder = 500, 100 - reorder  # netem sends this share at once, and holds the others
    if delay_us:
        words += ["delay", f"{delay_us}us"]
    if reorder:
        words += ["reorder", f"{reorder}%"]
    for kind in ("loss", "duplicate", "corrupt"):
        if faults[f"{kind}_ppm"]:
            words += [kind, f"{faults[f'{kind}_ppm'] / 10_000}%"]
    if rate_bps:
        words += ["rate", f"{rate_bps}bit"]
    return " ".join(words)
