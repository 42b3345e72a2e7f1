# SPDX-License-Identifier: Apache-2.0
"""Sums over the ranks of a job, and whether they are right: the numbers are made here, and added here by NumPy."""
import json
import math
import shlex

import numpy

from .errors import TestbedError, require

RANK = "/opt/testbed/mlnet-vm-rank"
BLOCK = 32  # elements that share an exponent: of float32, and of float64


def make_inputs(dtype, count, ranks, seed):
    """One array per rank. Floats of a wide range, whole numbers over their whole range, so that sums wrap."""
    random = numpy.random.default_rng([seed, ranks, count])
    if numpy.issubdtype(dtype, numpy.integer):
        limits = numpy.iinfo(dtype)
        return [random.integers(limits.min, limits.max, count, dtype, endpoint=True) for _ in range(ranks)]
    return [(random.standard_normal(count) * 10.0 ** random.integers(-6, 3, count)).astype(dtype) for _ in range(ranks)]


def check(inputs, results, what):
    """All ranks have the same bits, and these are the sum to the bound that the README promises."""
    for rank, result in enumerate(results):
        require(result.size == inputs[0].size, f"{what}: rank {rank} has {result.size} elements, not {inputs[0].size}")
        require(result.tobytes() == results[0].tobytes(), f"{what}: rank {rank} has other bits than rank 0")
    if numpy.issubdtype(inputs[0].dtype, numpy.integer):
        with numpy.errstate(over="ignore"):
            wrong = numpy.count_nonzero(results[0] != numpy.sum(inputs, axis=0, dtype=inputs[0].dtype))
    else:
        wrong = numpy.count_nonzero(numpy.abs(results[0].astype(numpy.longdouble) - exact_sum(inputs)) > bound(inputs))
    require(wrong == 0, f"{what}: {wrong} of {results[0].size} elements are wrong")
    return results[0].size


def exact_sum(inputs):
    return numpy.sum([one.astype(numpy.longdouble) for one in inputs], axis=0)


def bound(inputs):
    ranks, count = len(inputs), inputs[0].size
    lane_bits, relative = (32, 2.0**-12) if inputs[0].dtype == numpy.float32 else (64, 2.0**-24)
    magnitudes = numpy.abs(numpy.stack(inputs).astype(numpy.longdouble))
    padded = numpy.zeros(-(-count // BLOCK) * BLOCK, numpy.longdouble)
    padded[:count] = magnitudes.max(axis=0)
    largest = numpy.repeat(padded.reshape(-1, BLOCK).max(axis=1), BLOCK)[:count]
    of_block = ranks * largest * 2.0 ** (math.ceil(math.log2(ranks)) + 1 - lane_bits)
    rounding = numpy.abs(exact_sum(inputs)) * numpy.finfo(inputs[0].dtype).eps  # of the result to its type
    return numpy.minimum(of_block, relative * magnitudes.sum(axis=0)) + rounding


class Job:
    """One rank program per rank, rank r on the r-th worker in turn, each with a file of its own."""

    def __init__(self, cluster, name, dtype, count, ranks_per_host=1, seed=1, endless=False, user="root", traffic_class=0):
        self.cluster, self.name, self.user, self.traffic_class = cluster, name, user, traffic_class
        self.dtype = numpy.dtype(dtype)
        workers = cluster.topology.workers
        self.hosts = workers * ranks_per_host
        self.inputs = make_inputs(self.dtype, count, len(self.hosts), seed)
        self.stop_file = f"/run/{name}.stop" if endless else ""
        self.processes = []
        self.result = None  # the sum, once it is checked

    def start(self):
        for rank, host in enumerate(self.hosts):
            machine = self.cluster.machine(host)
            machine.put("/run/testbed", {f"{self.name}-{rank}.in": self.inputs[rank].tobytes()})
            machine.run("chmod 1777 /run/testbed; chmod a+r /run/testbed/*")
        for rank, host in enumerate(self.hosts):
            file = f"/run/testbed/{self.name}-{rank}"
            # Sums in user space, where an aggregator is slow to answer, are not what is tried here.
            words = ["env", "MLNET_REQUIRE_MODE=kernel", RANK, self.name, str(rank), str(len(self.hosts)), self.dtype.name, str(self.traffic_class), f"{file}.in", f"{file}.out"]
            words += [self.stop_file] if self.stop_file else []
            script = shlex.join(["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups", "--"] + words)
            self.processes.append(self.cluster.machine(host).start(script, self._output(rank)))
        return self

    def calls(self):
        """Sums that all ranks have seen so far."""
        return min(self._text(rank).count("call ") for rank in range(len(self.hosts)))

    def is_over(self):
        return any(process.poll() is not None for process in self.processes)

    def stop(self):
        self.cluster.machine(self.hosts[0]).run(f"touch {self.stop_file}")

    def codes(self, limit_s):
        return [process.wait(limit_s) for process in self.processes]

    def texts(self):
        return [self._text(rank) for rank in range(len(self.hosts))]

    def finish(self, limit_s=300):
        """Waits for all ranks and checks their sums; the ranks' counters."""
        for rank, code in enumerate(self.codes(limit_s)):
            if code != 0:
                raise TestbedError(f"job {self.name}, rank {rank} on {self.hosts[rank].name}: exit code {code}\n{self._text(rank)}")
        results = [numpy.frombuffer(self.cluster.machine(host).get(f"/run/testbed/{self.name}-{rank}.out"), self.dtype)
                   for rank, host in enumerate(self.hosts)]
        checked = check(self.inputs, results, f"job {self.name}")
        self.result = results[0]
        counters = [json.loads(self._text(rank).splitlines()[-1]) for rank in range(len(self.hosts))]
        for rank, one in enumerate(counters):  # a float64 block of a range that no lane holds is gathered, and added by the rank
            require(one["summed_in_kernel"] > 20 * one["summed_in_user_space"], f"job {self.name}, rank {rank}: not summed in the kernel: {one}")
        return {"job": self.name, "dtype": self.dtype.name, "ranks": len(self.hosts), "elements": checked, "wrong": 0, "counters": counters}

    def _output(self, rank):
        return self.cluster.folder / f"job-{self.name}-{rank}.log"

    def _text(self, rank):
        path = self._output(rank)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
