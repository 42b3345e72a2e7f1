# SPDX-License-Identifier: Apache-2.0
"""A training by PyTorch in the machines, and whether it is right: NumPy does the same descent here, in float64 over all ranks' samples."""
import io
import json
import pathlib
import re
import shlex

import numpy

from .errors import TestbedError, require

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "train.py"
PORT = 29500
INPUTS, HIDDEN, OUTPUTS, SAMPLES = 64, 512, 10, 64  # 38,410 parameters; samples of each rank
STEPS, RATE = 20, 0.5
NAMES = ("w1", "b1", "w2", "b2")
# float32, and a sum of gradients within 2^-12 of each: far below what a step moves the parameters.
TOLERANCE = 1e-4


def make_start(random):
    return {"w1": random.uniform(-1, 1, (HIDDEN, INPUTS)) / INPUTS**0.5, "b1": numpy.zeros(HIDDEN),
            "w2": random.uniform(-1, 1, (OUTPUTS, HIDDEN)) / HIDDEN**0.5, "b2": numpy.zeros(OUTPUTS)}


def descend(start, x, y):
    """Parameters after all steps, and the first and the last loss."""
    now, losses = {name: start[name].copy() for name in NAMES}, []
    for _ in range(STEPS):
        hidden = numpy.tanh(x @ now["w1"].T + now["b1"])
        error = hidden @ now["w2"].T + now["b2"] - y
        losses.append((error**2).mean())
        by_output = 2 * error / error.size
        by_hidden = by_output @ now["w2"] * (1 - hidden**2)
        gradients = {"w2": by_output.T @ hidden, "b2": by_output.sum(axis=0), "w1": by_hidden.T @ x, "b1": by_hidden.sum(axis=0)}
        for name in NAMES:
            now[name] -= RATE * gradients[name]
    return now, losses[0], losses[-1]


class Training:
    """One process per worker."""

    def __init__(self, cluster, name, seed):
        self.cluster, self.name, self.hosts = cluster, name, cluster.topology.workers
        random = numpy.random.default_rng(seed)
        self.start_at = {key: value.astype(numpy.float32) for key, value in make_start(random).items()}
        self.x = random.standard_normal((len(self.hosts), SAMPLES, INPUTS)).astype(numpy.float32)
        self.y = numpy.tanh(self.x[..., :OUTPUTS] * 2).astype(numpy.float32)
        self.processes = []

    def start(self):
        environment = {"WORLD_SIZE": str(len(self.hosts)), "MASTER_ADDR": self.hosts[0].address, "MASTER_PORT": str(PORT), "MLNET_REQUIRE_MODE": "kernel"}
        for rank, host in enumerate(self.hosts):
            given = io.BytesIO()
            numpy.savez(given, x=self.x[rank], y=self.y[rank], rate=RATE, steps=STEPS, **self.start_at)
            self.cluster.machine(host).put("/run/testbed", {f"{self.name}-{rank}.npz": given.getvalue(), "train.py": SCRIPT})
        for rank, host in enumerate(self.hosts):
            words = ["env", f"RANK={rank}", *(f"{key}={value}" for key, value in environment.items()), "/usr/bin/python3", "/run/testbed/train.py",
                     f"/run/testbed/{self.name}-{rank}.npz", f"/run/testbed/{self.name}-{rank}.out.npz"]
            self.processes.append(self.cluster.machine(host).start(shlex.join(words), self._output(rank)))
        return self

    def finish(self, limit_s=900):
        """Waits for all ranks, and compares their parameters with each other and with NumPy's."""
        for rank, process in enumerate(self.processes):
            if process.wait(limit_s) != 0:
                raise TestbedError(f"training {self.name}, rank {rank} on {self.hosts[rank].name}: exit code {process.returncode}\n{self._text(rank)}")
        raw = [self.cluster.machine(host).get(f"/run/testbed/{self.name}-{rank}.out.npz") for rank, host in enumerate(self.hosts)]
        ends = [numpy.load(io.BytesIO(one)) for one in raw]
        start = {name: value.astype(numpy.float64) for name, value in self.start_at.items()}
        right, first_loss, last_loss = descend(start, self.x.reshape(-1, INPUTS).astype(numpy.float64), self.y.reshape(-1, OUTPUTS).astype(numpy.float64))
        for name in NAMES:
            for rank, end in enumerate(ends):
                require(end[name].tobytes() == ends[0][name].tobytes(), f"{name}: rank {rank} has other bits than rank 0")
        off = max(numpy.abs(ends[0][name] - right[name]).max() for name in NAMES)
        moved = max(numpy.abs(start[name] - right[name]).max() for name in NAMES)
        require(off <= TOLERANCE < moved / 10, f"parameters are off by up to {off}, allowed are {TOLERANCE}; the training moves them by {moved}")
        require(last_loss < first_loss / 2, f"the loss fell from {first_loss} to {last_loss} only: nothing is learnt here")
        stats = [json.loads(re.findall(r"^\{.*\}$", self._text(rank), re.M)[-1]) for rank in range(len(self.hosts))]
        for rank, one in enumerate(stats):
            require(one["summed_in_kernel"] > 20 * one["summed_in_user_space"], f"training {self.name}, rank {rank}: not summed in the kernel: {one}")
        return {"ranks": len(self.hosts), "parameters": int(sum(value.size for value in right.values())), "steps": STEPS, "off": float(off),
                "moved": float(moved), "loss": [float(first_loss), float(last_loss)], "stats": stats}

    def _output(self, rank):
        return self.cluster.folder / f"training-{self.name}-{rank}.log"

    def _text(self, rank):
        path = self._output(rank)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
