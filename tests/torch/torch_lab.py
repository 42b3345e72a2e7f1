# SPDX-License-Identifier: Apache-2.0
"""A lab for the PyTorch tests, and how to run one rank program on all of its workers."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ["MLNET_BUILD"]).resolve()
LAB_PROGRAM = str(BUILD / "bin" / "mlnet-lab")
PYTHON = "/usr/bin/python3"
SESSION_TIMEOUT_S = 120


def wait_until(what, condition, timeout_s=90):
    deadline, between_looks = time.monotonic() + timeout_s, threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        between_looks.wait(0.05)


class Lab:
    def __init__(self, workers, rate="1gbit", aggregator_rate="4gbit", more=()):
        self.name = f"torch_{os.getpid()}"
        self.run("up", "--workers", str(workers), "--aggregators", "1", "--rate", rate, "--agg-rate", aggregator_rate, *more)
        self.hosts = json.loads(self.run("status"))["hosts"]
        self.workers = [host for host in self.hosts if host["role"] == "worker"]
        self.sessions = 0

    def run(self, *arguments):
        done = subprocess.run([LAB_PROGRAM, "--name", self.name, "-j", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"mlnet-lab {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def down(self):
        self.run("down")

    def spawn(self, host, command, environment=None, **streams):
        """A command on a host; `down` ends it at the latest."""
        pairs = [f"{key}={value}" for key, value in (environment or {}).items()]
        return subprocess.Popen([LAB_PROGRAM, "--name", self.name, "exec", host["name"], "--", "env", *pairs, *command],
                                **streams)

    def output(self, host, command):
        done = self.spawn(host, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = done.communicate(timeout=SESSION_TIMEOUT_S)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} on {host['name']}: {err}")
        return out

    def session(self, program, environment, size, timeout_s=SESSION_TIMEOUT_S):
        """Runs PROGRAM.py once on each of the first `size` workers; returns [{"returncode", "result", "stderr"}] in rank order."""
        return self.start_session(program, environment, size).wait(timeout_s)

    def start_session(self, program, environment, size):
        self.sessions += 1
        return RunningSession(self, program, environment, size)


def collect_rank(process, out, err):
    """What a rank left behind, whose time is up; closes its streams."""
    if process.poll() is None:
        process.kill()
        process.wait()
    with out, err:
        out.seek(0)
        err.seek(0)
        lines = out.read().splitlines()
        result = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
        return {"returncode": process.returncode, "result": result, "stderr": err.read()}


class RunningSession:
    """PROGRAM.py on each of the first `size` workers."""

    def __init__(self, lab, program, environment, size):
        self.program = program
        self.folder = tempfile.TemporaryDirectory(prefix="mlnet-torch-")
        self.ranks = []
        for rank, host in enumerate(lab.workers[:size]):
            variables = {
                "RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": lab.workers[0]["address"],
                "MASTER_PORT": 29500 + lab.sessions, "OMP_NUM_THREADS": 1, "PYTHONPATH": BUILD / "python",
                "PYTHONDONTWRITEBYTECODE": 1, "MLNET_JOB": program, **environment,
            }
            out = open(pathlib.Path(self.folder.name) / f"{rank}.out", "w+")
            err = open(pathlib.Path(self.folder.name) / f"{rank}.err", "w+")
            process = lab.spawn(host, [PYTHON, str(HERE / f"{program}.py")], variables, stdout=out, stderr=err)
            self.ranks.append((process, out, err))

    def is_running(self):
        return all(process.poll() is None for process, _, _ in self.ranks)

    def wait(self, timeout_s=SESSION_TIMEOUT_S):
        deadline = time.monotonic() + timeout_s
        try:
            for process, _, _ in self.ranks:
                process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            print(f"{self.program}: not done after {timeout_s} s", file=sys.stderr)
        results = [collect_rank(*rank) for rank in self.ranks]
        self.folder.cleanup()
        return results
