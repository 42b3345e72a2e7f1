# SPDX-License-Identifier: Apache-2.0
"""Tensors of more than 2^31 elements, where a 32-bit count or offset would wrap. Long: runs only with MLNET_LONG=1.

Two ranks on links without a rate, about four minutes. A float16 tensor of this size is 4 GiB a rank.
"""
import os
import unittest

import torch_test
from torch_lab import Lab
from torch_test import Session, with_checks

WORKERS = 2
MEMORY_GIB = 11


def available_gib():
    with open("/proc/meminfo", encoding="ascii") as lines:
        found = next(line for line in lines if line.startswith("MemAvailable:"))
    return int(found.split()[1]) / 2 ** 20


def tearDownModule():
    if torch_test.lab is not None:
        torch_test.lab.down()


@with_checks
class Beyond31Bits(Session):
    program = "ranks_large"
    size = WORKERS
    timeout_s = 900

    @classmethod
    def setUpClass(cls):
        if os.environ.get("MLNET_LONG") != "1":
            raise unittest.SkipTest("takes minutes and gigabytes: runs with MLNET_LONG=1 (tools/check --full)")
        if available_gib() < MEMORY_GIB:
            raise unittest.SkipTest(f"{available_gib():.1f} GiB of memory are available, {MEMORY_GIB} are needed")
        torch_test.lab = Lab(WORKERS, rate="unlimited", aggregator_rate="unlimited")
        super().setUpClass()

    def test_the_times_are_reported(self):
        facts = self.ranks[0]["result"]["facts"]
        print(f"\nseed {facts['seed']}; rank 0: " +
              ", ".join(f"{call} {seconds:.1f} s" for call, seconds in facts["seconds"].items()), flush=True)


def load_tests(loader, _tests, _pattern):
    return loader.loadTestsFromTestCase(Beyond31Bits)


if __name__ == "__main__":
    unittest.main(verbosity=2)
