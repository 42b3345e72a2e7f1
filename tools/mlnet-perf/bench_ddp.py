# SPDX-License-Identifier: Apache-2.0
"""The ddp part of tools/bench: steps of DistributedDataParallel in a lab, Gloo and mlnet in turns."""
import json
import pathlib
import statistics
import subprocess

RANK = pathlib.Path(__file__).resolve().parent / "ddp_rank.py"
WIRES = ("gloo", "int32", "int16")


def turn(lab, hosts, wire, elements, steps, number):
    """What all ranks found, in their order."""
    lab.command("xdp", "off" if wire == "gloo" else "on")  # Gloo keeps its segmentation offload
    ranks = []
    for rank, host in enumerate(hosts):
        environment = {"RANK": rank, "WORLD_SIZE": len(hosts), "MASTER_ADDR": hosts[0]["address"], "MASTER_PORT": 29600 + number,
                       "OMP_NUM_THREADS": 1, "GLOO_SOCKET_IFNAME": host["iface"], "MLNET_JOB": f"ddp{number}",
                       "PYTHONPATH": lab.bench.options.build.resolve() / "python"}
        command = [lab.program, "--name", lab.name, "exec", host["name"], "--", "env", *(f"{k}={v}" for k, v in environment.items()),
                   "/usr/bin/python3", RANK, "--wire", wire, "--elements", elements, "--steps", steps]
        ranks.append(subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True))
    found = [json.loads(rank.communicate()[0].splitlines()[-1]) for rank in ranks]
    # A step takes as long as its slowest rank.
    slowest = [max(seconds) for seconds in zip(*(rank["seconds"] for rank in found))]
    return {"seconds": slowest, "alone_s": max(rank["alone_s"] for rank in found), "wrong": sum(rank["wrong"] for rank in found),
            "checked": sum(rank["checked"] for rank in found)}


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(percent / 100 * len(ordered)))]


def measure(lab, elements, steps, rounds):
    """Rows in the shape of mlnet-lab.perf/1, as far as they go."""
    hosts = [host for host in json.loads(lab.command("status"))["hosts"] if host["role"] == "worker"]
    turns = {wire: [] for wire in WIRES}
    for number in range(rounds):
        for place, wire in enumerate(WIRES):
            turns[wire].append(turn(lab, hosts, wire, elements, steps, number * len(WIRES) + place))
    rows = []
    for wire, of_wire in turns.items():
        seconds = [s for one in of_wire for s in one["seconds"]]
        rows.append({"backend": "gloo" if wire == "gloo" else "mlnet", "wire": None if wire == "gloo" else wire, "ranks": len(hosts),
                     "bytes": 4 * elements, "wrong": sum(one["wrong"] for one in of_wire), "checked": sum(one["checked"] for one in of_wire),
                     "alone_us": statistics.median(one["alone_s"] for one in of_wire) * 1e6,
                     "round_us_p50": [statistics.median(one["seconds"]) * 1e6 for one in of_wire],
                     **{f"time_us_p{p}": percentile(seconds, p) * 1e6 for p in (25, 75, 99)},
                     "time_us_p50": statistics.median(seconds) * 1e6})
    return rows
