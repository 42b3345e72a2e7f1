# SPDX-License-Identifier: Apache-2.0
"""mlnet.schedule on real ranks: what it orders and defers, and that no bit of a training changes."""
import unittest

import torch_test
from torch_lab import Lab
from torch_test import Session, with_checks

WORKERS = 3


def setUpModule():
    torch_test.lab = Lab(WORKERS)


def tearDownModule():
    torch_test.lab.down()


@with_checks
class Scheduled(Session):
    program = "ranks_schedule"
    size = WORKERS


def load_tests(loader, _tests, _pattern):
    return loader.loadTestsFromTestCase(Scheduled)


if __name__ == "__main__":
    unittest.main(verbosity=2)
