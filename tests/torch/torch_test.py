# SPDX-License-Identifier: Apache-2.0
"""The PyTorch backend in a real lab: four hosts, one aggregator, one rank a host.

Each session runs a rank program on all hosts once; every check of that program becomes one test here.
"""
import json
import re
import unittest

from float_errors import HEADER, row
from torch_lab import BUILD, HERE, SESSION_TIMEOUT_S, Lab

WORKERS = 4
RANKS_MAX = 64  # one bit each in the bitmap of arrivals
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
    timeout_s = SESSION_TIMEOUT_S

    @classmethod
    def setUpClass(cls):
        cls.ranks = lab.session(cls.program, cls.environment, cls.size, cls.timeout_s)

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


@with_checks
class RealGradients(Session):
    program = "ranks_gradients"
    environment = {"GLOO_SOCKET_IFNAME": "eth0"}

    def test_the_numbers_are_reported_and_equal_on_all_ranks(self):
        facts = self.ranks[0]["result"]["facts"]
        print(f"\nseed {facts['seed']}, {facts['wide_blocks']} wide blocks. Errors against the exact sum. "
              f"worse, better: elements\nwhose own error is above or below the ring's. The last three: small elements.")
        print(HEADER)
        for bucket, sums, *_ in facts["samples"] + facts["pair_samples"]:
            for by, found in sums.items():
                print(row(bucket, by, found), flush=True)
        for rank, data in self.living():
            self.assertEqual(data["result"]["facts"]["samples"], facts["samples"], f"rank {rank}")


@with_checks
class Tags(Session):
    program = "ranks_mac"

    def test_the_jobs_are_those_that_were_asked_for(self):
        for rank, data in self.living():
            facts = data["result"]["facts"]
            self.assertEqual((len(facts["tagged"]), len(facts["plain"])), (3, 2))
            self.assertEqual(facts, self.ranks[0]["result"]["facts"], f"rank {rank}")
            for kind, jobs in facts.items():
                for job in jobs:
                    shown = json.loads(lab.output(lab.workers[rank], [str(BUILD / "bin" / "mlnetctl"), "job", "show", job, "-j"]))
                    self.assertEqual(shown["spec"]["mac"], kind == "tagged", f"{job}, {kind}")


@with_checks
class TooManyRanks(Session):
    program = "ranks_too_many"
    size = 1


class SixtyFourRanks(unittest.TestCase):
    """Processes of libmlnet without torch, of which 64 would not fit into a small machine."""

    def test_T25_sixty_four_ranks_join_and_every_element_is_right(self):
        sizes = [1, 353, 30_000]  # one element, one more than a packet, many packets
        for dtype in ("int32", "float32"):
            report = json.loads(lab.run(
                "perf", "--ranks-per-host", str(RANKS_MAX // WORKERS), "--counts", ",".join(map(str, sizes)),
                "--iters", "2", "--warmup", "0", "--check", "--dtype", dtype, "--timeout", "60"))
            self.assertEqual([line["count"] for line in report["rows"]], sizes)
            for line in report["rows"]:
                self.assertEqual((line["ranks"], line["wrong"]), (RANKS_MAX, 0), line)
                self.assertGreater(line["checked"], 0, line)

    def test_T25_the_limit_is_documented_where_torch_users_read(self):
        readme = (HERE.parents[1] / "userspace" / "torch" / "README.md").read_text(encoding="utf-8")
        self.assertIn("1 to 256 ranks per group", readme)


class OtherDevice(Session):
    """Tensors of a device that is made for tests, see device/memory.h."""
    environment = {"MLNET_JOB": "device", "PYTHONPATH": f"{BUILD}/python:{BUILD}/tests/torch/device:{HERE}"}


@with_checks
class DeviceTensors(OtherDevice):
    program = "device/ranks_device"


@with_checks
class DeviceChunks(OtherDevice):
    program = "device/ranks_chunks"


def load_tests(loader, _tests, _pattern):
    return unittest.TestSuite(loader.loadTestsFromTestCase(cls) for cls in
                              (Collectives, UserReports, Ddp, RealGradients, Tags, TooManyRanks, SixtyFourRanks,
                               DeviceTensors, DeviceChunks, KilledRank, NoDaemon))


if __name__ == "__main__":
    unittest.main(verbosity=2)
