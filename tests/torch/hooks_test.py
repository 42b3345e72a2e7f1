# SPDX-License-Identifier: Apache-2.0
"""The communication hooks: top-k over Gloo alone and over mlnet, narrow lanes over mlnet.

    hooks_test.py               everything; needs a lab
    hooks_test.py TopKOverGloo  no lab, no daemon: one namespace with a loopback
"""
import pathlib
import subprocess
import tempfile
import unittest

import torch_test
from torch_lab import BUILD, HERE, PYTHON, SESSION_TIMEOUT_S, Lab, collect_rank
from torch_test import WORKERS, Session, with_checks


class Loopback:
    """A network namespace of our own for ranks that need no daemon; the same `session` as a lab."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.holder.stdout.readline() != b"up\n":
            raise RuntimeError("no network namespace could be made")

    def down(self):
        self.holder.communicate()

    def session(self, program, environment, size):
        ranks = []
        with tempfile.TemporaryDirectory(prefix="mlnet-torch-") as folder:
            for rank in range(size):
                variables = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500,
                             "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": 1, "PYTHONPATH": BUILD / "python",
                             "PYTHONDONTWRITEBYTECODE": 1, **environment}
                out = open(pathlib.Path(folder) / f"{rank}.out", "w+", encoding="utf-8")
                err = open(pathlib.Path(folder) / f"{rank}.err", "w+", encoding="utf-8")
                command = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "env",
                           *(f"{key}={value}" for key, value in variables.items()), PYTHON, str(HERE / f"{program}.py")]
                ranks.append((subprocess.Popen(command, stdout=out, stderr=err), out, err))
            for process, _, _ in ranks:
                try:
                    process.wait(SESSION_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    break
            return [collect_rank(*rank) for rank in ranks]


class InLab(Session):
    """A session in a lab that all such sessions share."""

    @classmethod
    def setUpClass(cls):
        if torch_test.lab is None:
            torch_test.lab = Lab(WORKERS)
        super().setUpClass()


def tearDownModule():
    if torch_test.lab is not None:
        torch_test.lab.down()


@with_checks
class TopKOverGloo(Session):
    program = "ranks_topk"
    environment = {"BACKEND": "gloo"}

    @classmethod
    def setUpClass(cls):
        loopback = Loopback()
        try:
            cls.ranks = loopback.session(cls.program, cls.environment, cls.size)
        finally:
            loopback.down()


@with_checks
class TopK(InLab):
    program = "ranks_topk"


@with_checks
class Compress(InLab):
    program = "ranks_compress"


def load_tests(loader, _tests, _pattern):
    return unittest.TestSuite(loader.loadTestsFromTestCase(cls) for cls in (TopKOverGloo, TopK, Compress))


if __name__ == "__main__":
    unittest.main(verbosity=2)
