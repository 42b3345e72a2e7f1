# SPDX-License-Identifier: Apache-2.0
"""A lab for the PyTorch tests, and how to run one rank program on all of its workers."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ["MLNET_BUILD"]).resolve()
LAB_PROGRAM = str(BUILD / "bin" / "mlnet-lab")
PYTHON = "/usr/bin/python3"
SESSION_TIMEOUT_S = 120


class Lab:
    def __init__(self, workers, rate="1gbit", aggregator_rate="4gbit"):
        self.name = f"torch_{os.getpid()}"
        self.run("up", "--workers", str(workers), "--aggregators", "1", "--rate", rate, "--agg-rate", aggregator_rate)
        hosts = json.loads(self.run("status"))["hosts"]
        self.workers = [host for host in hosts if host["role"] == "worker"]
        self.sessions = 0

    def run(self, *arguments):
        done = subprocess.run([LAB_PROGRAM, "--name", self.name, "-j", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"mlnet-lab {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def down(self):
        self.run("down")

    def session(self, program, environment, size, timeout_s=SESSION_TIMEOUT_S):
        """Runs PROGRAM.py once on each of the first `size` workers; returns [{"returncode", "result", "stderr"}] in rank order."""
        self.sessions += 1
        ranks = []
        with tempfile.TemporaryDirectory(prefix="mlnet-torch-") as folder:
            for rank, host in enumerate(self.workers[:size]):
                variables = {
                    "RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": self.workers[0]["address"],
                    "MASTER_PORT": 29500 + self.sessions, "OMP_NUM_THREADS": 1, "PYTHONPATH": BUILD / "python",
                    "PYTHONDONTWRITEBYTECODE": 1, "MLNET_JOB": program, **environment,
                }
                command = [LAB_PROGRAM, "--name", self.name, "exec", host["name"], "--", "env",
                           *(f"{key}={value}" for key, value in variables.items()), PYTHON, str(HERE / f"{program}.py")]
                out = open(pathlib.Path(folder) / f"{rank}.out", "w+")
                err = open(pathlib.Path(folder) / f"{rank}.err", "w+")
                ranks.append((subprocess.Popen(command, stdout=out, stderr=err), out, err))
            deadline = time.monotonic() + timeout_s
            try:
                for process, _, _ in ranks:
                    process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                print(f"{program}: not done after {timeout_s} s", file=sys.stderr)
            return [self._collect(*rank) for rank in ranks]

    @staticmethod
    def _collect(process, out, err):
        if process.poll() is None:
            process.kill()
            process.wait()
        out.seek(0)
        err.seek(0)
        lines = out.read().splitlines()
        result = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
        return {"returncode": process.returncode, "result": result, "stderr": err.read()}
