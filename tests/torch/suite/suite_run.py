# SPDX-License-Identifier: Apache-2.0
"""Runs a list of the suite's tests in one namespace of a lab of its own, with a deadline for each test."""
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from torch_lab import BUILD, LAB_PROGRAM, PYTHON  # noqa: E402

WORLD_SIZE = 3
LABS = pathlib.Path("/run/mlnet-lab")
START_LIMIT_S = 120
GRACE_S = 30  # the suite itself ends a test at its limit and takes tracebacks first
LIMITS_S = {"test_ddp_uneven_inputs": 400}  # as in torch's TIMEOUT_OVERRIDE


class Lab:
    """One host for all ranks and one aggregator; leaves the daemons' logs in `folder`. Labs of dead runs go first."""

    def __init__(self, folder):
        self.folder = folder
        for left in LABS.glob("suite_*"):
            if re.fullmatch(r"suite_\d+", left.name) and not pathlib.Path("/proc", left.name[6:]).exists():
                self.call(left.name, "down")
        self.name = f"suite_{os.getpid()}"

    @staticmethod
    def call(name, *arguments):
        done = subprocess.run([LAB_PROGRAM, "--name", name, *arguments], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return "" if done.returncode == 0 else f"mlnet-lab {' '.join(arguments)}: {done.stdout}"

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            problem = self.call(self.name, "up", "--workers", "1", "--aggregators", "1", "--rate", "1gbit",
                                "--agg-rate", "1gbit")
            if problem:
                raise RuntimeError(problem)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for log in (LABS / self.name).glob("*/mlnetd.log"):
            shutil.copy(log, self.folder / f"{log.parent.name}.log")
        problem = self.call(self.name, "down")
        if problem:
            print(problem, file=sys.stderr)


class Process:
    """suite_process.py on the lab's worker host; lines() yields its reports and ends when it does."""

    def __init__(self, lab, backend, folder, tests, limit_s, seed):
        (folder / "tests").write_text("".join(f"{name}\n" for name in tests))
        (folder / "tmp").mkdir(exist_ok=True)
        variables = {
            "BACKEND": backend, "WORLD_SIZE": WORLD_SIZE, "SUITE_TESTS": folder / "tests", "SUITE_LOG": folder / "log",
            "SUITE_SEED": seed, "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": limit_s, "TMPDIR": folder / "tmp",
            "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": 1, "PYTHONPATH": f"{BUILD / 'python'}:{HERE}",
            "PYTHONDONTWRITEBYTECODE": 1,
        }
        command = [LAB_PROGRAM, "--name", lab.name, "exec", "w1", "--", "env",
                   *(f"{key}={value}" for key, value in variables.items()), PYTHON, str(HERE / "suite_process.py")]
        with open(folder / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                            start_new_session=True)
        self.buffer = b""

    def line(self, limit_s):
        """The next report; None at the end of the process or after limit_s."""
        deadline = time.monotonic() + limit_s
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                return None
            self.buffer += piece
        first, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(first)

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdout.close()


def log_part(folder, begin, end):
    with open(folder / "log", "rb") as log:
        log.seek(begin)
        return log.read(None if end is None else end - begin).decode(errors="replace")


def run_share(lab, backend, folder, tests, limit_s, seed, progress):
    """Runs until the process ends or a test hangs; returns (results by name, names known to the suite)."""
    results, names, running = {}, [], None
    process = Process(lab, backend, folder, tests, limit_s, seed)
    try:
        while True:
            limit = START_LIMIT_S if running is None else LIMITS_S.get(running, limit_s) + GRACE_S
            begun = time.monotonic()
            report = process.line(limit)
            if report is None:
                break
            names = report.get("names", names)
            running = report.get("start", running)
            if "test" in report:
                result = {key: report[key] for key in ("outcome", "reason", "seconds")}
                if result["outcome"] in ("failed", "error"):
                    result["log"] = log_part(folder, *report["log"])
                results[running] = result
                progress(running, result)
                running = None
    finally:
        process.kill()
    if running is not None:
        seconds = round(time.monotonic() - begun, 2)
        reason = f"no end after {limit} s, killed" if seconds >= limit else "the process of the suite died"
        results[running] = {"outcome": "error", "reason": reason, "seconds": seconds}
        progress(running, results[running])
    return results, names


def run_tests(lab, backend, folder, tests, limit_s, seed, progress):
    """All of `tests` (none named: the whole suite), with a new process after each one that hung."""
    results, left = {}, tests
    while True:
        done, names = run_share(lab, backend, folder, left, limit_s, seed, progress)
        results.update(done)
        if not names:
            raise RuntimeError(f"the suite did not start; see {folder / 'log'}")
        left = [name for name in tests or names if name in names and name not in results]
        if not left:
            break
        if not done:
            raise RuntimeError(f"the suite stopped before {left[0]}; see {folder / 'log'}")
    for name in tests:
        results.setdefault(name, {"outcome": "error", "reason": "not in this suite", "seconds": 0.0})
    return results
