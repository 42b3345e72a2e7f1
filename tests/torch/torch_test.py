# SPDX-License-Identifier: Apache-2.0
"""The PyTorch backend in a real lab: four hosts, one aggregator, one rank a host.

Each session runs a rank program on all hosts once; every check of that program becomes one test here.
"""
import re
import unittest

from torch_lab import HERE, Lab

WORKERS = 4
lab = None


def setUpModule():
    global lab
    lab = Lab(WORKERS)


def tearDownModule():
    lab.down()


def names_of_checks(program):
    return re.findall(r"^@checks\.check\ndef (\w+)\(", (HERE / f"{program}.py").read_text(), re.M)


class Session(unittest.TestCase):
    """Base of the sessions: runs `program` once for all of its tests."""
    program = None
    environment = {}
    size = WORKERS
    dies = ()  # ranks that do not come back

    @classmethod
    def setUpClass(cls):
        cls.ranks = lab.session(cls.program, cls.environment, cls.size)

    def living(self):
        return [(rank, data) for rank, data in enumerate(self.ranks) if rank not in self.dies]

    def test_all_ranks_end_in_order(self):
        for rank, data in self.living():
            self.assertEqual(data["returncode"], 0, f"rank {rank}: {data['stderr']}")
            self.assertTrue(data["result"], f"rank {rank} reported nothing: {data['stderr']}")

    def expect(self, check):
        for rank, data in self.living():
            problems = data["result"].get("problems", {}).get(check, [f"rank {rank} never got there: {data['stderr']}"])
            self.assertEqual(problems, [], "\n".join(problems))


def with_checks(cls):
    """One test per check of the session's program."""
    for check in names_of_checks(cls.program):
        setattr(cls, f"test_{check}", lambda self, check=check: self.expect(check))
    return cls


@with_checks
class Collectives(Session):
    program = "ranks_collectives"

    def test_a_delegated_call_is_logged_once_per_kind(self):
        for rank, data in self.living():
            lines = [line for line in data["stderr"].splitlines() if "all_reduce int64 PRODUCT goes to Gloo" in line]
            self.assertEqual(len(lines), 1, f"rank {rank}: {data['stderr']}")


@with_checks
class UserReports(Session):
    program = "ranks_reports"


@with_checks
class Ddp(Session):
    program = "ranks_ddp"
    # For the Gloo group that the test itself makes: Gloo would look up the name of the host.
    environment = {"GLOO_SOCKET_IFNAME": "eth0"}


@with_checks
class KilledRank(Session):
    program = "ranks_killed"
    dies = (2,)

    def test_the_error_comes_long_before_the_deadline(self):
        for rank, data in self.living():
            self.assertLess(data["result"]["facts"]["seconds"], 10, f"rank {rank}")


@with_checks
class NoDaemon(Session):
    program = "ranks_no_daemon"
    size = 1
    environment = {"MLNET_SOCKET": "/nonexistent/mlnetd.sock"}


def load_tests(loader, _tests, _pattern):
    return unittest.TestSuite(loader.loadTestsFromTestCase(cls) for cls in
                              (Collectives, UserReports, Ddp, KilledRank, NoDaemon))


if __name__ == "__main__":
    unittest.main(verbosity=2)
