# SPDX-License-Identifier: Apache-2.0
"""The only aggregator dies during a DDP training: it goes on in the ring of ranks, and learns bit for bit the same."""
import pathlib
import subprocess
import tempfile
import unittest

from torch_lab import Lab, wait_until

WORKERS = 4
STEPS = 120
STEPS_BEFORE = 30
STEPS_HELD = 20  # for the loss: without it they might be done before a busy machine has got to it
lab = None


def setUpModule():
    global lab
    lab = Lab(WORKERS)


def tearDownModule():
    lab.down()


def steps_of(progress):
    return int((progress.read_text(encoding="utf-8") if progress.exists() else "") or 0)


def train(folder, name, meanwhile=None):
    progress = pathlib.Path(folder) / f"{name}.progress"
    variables = {"PROGRESS": progress, "STOP": pathlib.Path(folder) / "never", "STEPS": STEPS, "MLNET_JOB": name}
    if meanwhile:
        variables |= {"STEPS_HELD": STEPS_HELD, "RELEASE": progress.with_suffix(".release")}
    session = lab.start_session("ranks_outage", variables, WORKERS)
    if meanwhile:
        wait_until("some steps are done", lambda: steps_of(progress) >= STEPS_BEFORE or not session.is_running())
        meanwhile()
        variables["RELEASE"].touch()
    return session.wait()


class AggregatorDies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        aggregator = next(host for host in lab.hosts if host["role"] == "aggregator")
        with tempfile.TemporaryDirectory(prefix="mlnet-ring-") as folder:
            cls.calm = train(folder, "calm")
            # Without its mlnetd alone it would go on summing.
            cut = ["ip", "-n", aggregator["netns"], "link", "set", "eth0", "down"]
            cls.hit = train(folder, "hit", lambda: subprocess.run(cut, check=True))

    def facts(self, ranks):
        for rank, data in enumerate(ranks):
            self.assertEqual(data["returncode"], 0, f"rank {rank}: {data['stderr']}")
            self.assertEqual(data["result"]["problems"], {"training_goes_on": []}, f"rank {rank}")
        return [data["result"]["facts"] for data in ranks]

    def test_the_training_goes_on_and_learns_the_same_bits(self):
        calm, hit = self.facts(self.calm), self.facts(self.hit)
        for rank in range(WORKERS):
            self.assertEqual(hit[rank]["digests"], calm[0]["digests"], f"rank {rank}")
            self.assertEqual(hit[rank]["steps"], STEPS)

    def test_what_was_summed_where_is_counted_and_said_once(self):
        for rank, facts in enumerate(self.facts(self.calm)):
            self.assertEqual(facts["summed_in_ring"], 0, f"rank {rank}")
        for rank, facts in enumerate(self.facts(self.hit)):
            self.assertGreater(facts["summed_in_ring"], 0, f"rank {rank}")
            self.assertGreater(facts["summed_in_kernel"], 0, f"rank {rank}")
            lines = [line for line in self.hit[rank]["stderr"].splitlines() if "sums in user space from here on, in a ring of 4 ranks" in line]
            self.assertEqual(len(lines), 1, self.hit[rank]["stderr"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
