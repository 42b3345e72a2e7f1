# SPDX-License-Identifier: Apache-2.0
"""Runs tests of torch's distributed_test.py one after the other; each test forks its own ranks.

Started by suite_run.py on a host of a lab and configured by the environment: BACKEND, WORLD_SIZE, SUITE_LOG, SUITE_SEED
and SUITE_TESTS (a file with one name a line; an empty one means all). Reports one JSON object a line on the standard
output it was started with: {"names": [...]} first, then {"start": NAME} before a test and {"test": NAME,
"outcome": ..., "reason": ..., "seconds": ..., "log": [from, to]} after it.
"""
import ctypes
import importlib
import json
import os
import signal
import sys
import time
import unittest

PR_SET_PDEATHSIG = 1
BACKEND = os.environ["BACKEND"]


class AsGloo(str):
    """The name of a backend that takes the branches `if BACKEND == "gloo"` of the suite."""

    def __eq__(self, other):
        return other == "gloo" or str.__eq__(self, other)

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def import_suite():
    """The suite's module. Its decorators decide at import what a backend is asked: every one is asked what Gloo is."""
    os.environ["BACKEND"] = "gloo"
    os.environ["INIT_METHOD"] = "file://"  # each test gets a file of its own in setUp
    sys.argv[1:] = ["--seed", os.environ["SUITE_SEED"]]  # torch's test library reads it at import
    suite = importlib.import_module("torch.testing._internal.distributed.distributed_test")
    os.environ["BACKEND"] = BACKEND
    # The suite turns on replicated tensors for DDP, off by default and impossible with Python 3.11: torch 1.13 cannot
    # import torch.distributed._shard there, and every DDP test on CPUs would fail before it began.
    interop = importlib.import_module("torch.nn.parallel._replicated_tensor_ddp_utils")
    interop._set_ddp_with_replicated_tensor = lambda _: None
    if BACKEND != "gloo":
        importlib.import_module(BACKEND)  # registers itself
        suite.BACKEND = AsGloo(BACKEND)
        for table in (suite.PROFILING_SUPPORTED_BACKENDS, suite.CUDA_PROFILING_SUPPORTED_BACKENDS,
                      suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
            table.append(BACKEND)
    return suite


def make_case(suite):
    import torch

    class Suite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            suite.INIT_METHOD = os.environ["INIT_METHOD"]
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, *arguments):
            die_with_parent()
            super()._run(*arguments)

    return Suite


class Report(unittest.TestResult):
    def __init__(self, out):
        super().__init__()
        self.out = out

    def write(self, **fields):
        self.out.write(json.dumps(fields) + "\n")
        self.out.flush()

    def startTest(self, test):
        super().startTest(test)
        self.outcome, self.reason = "passed", ""
        self.began, self.log_from = time.monotonic(), os.fstat(1).st_size
        self.write(start=test._testMethodName)

    def addSkip(self, test, reason):
        self.outcome, self.reason = "skipped", reason

    def addFailure(self, test, err):
        self.outcome, self.reason = "failed", self._exc_info_to_string(err, test)

    def addError(self, test, err):
        self.outcome, self.reason = "error", self._exc_info_to_string(err, test)

    def stopTest(self, test):
        super().stopTest(test)
        sys.stdout.flush()
        sys.stderr.flush()
        self.write(test=test._testMethodName, outcome=self.outcome, reason=self.reason,
                   seconds=round(time.monotonic() - self.began, 2), log=[self.log_from, os.fstat(1).st_size])


def main():
    die_with_parent()
    report = Report(os.fdopen(os.dup(1), "w"))
    log = os.open(os.environ["SUITE_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    case = make_case(import_suite())
    known = unittest.TestLoader().getTestCaseNames(case)
    with open(os.environ["SUITE_TESTS"]) as tests:
        names = tests.read().split()
    report.write(names=known)
    unittest.TestSuite(case(name) for name in names or known if name in known).run(report)


if __name__ == "__main__":
    main()
