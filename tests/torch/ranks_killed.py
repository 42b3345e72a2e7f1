# SPDX-License-Identifier: Apache-2.0
"""Rank program: rank 2 dies in the middle; the others must say so, long before their deadline."""
import os
import signal
import time

import torch
import torch.distributed as dist

from rank_checks import RANK, Checks, error_of, join

mlnet = join(timeout_s=60)
checks = Checks()
dist.all_reduce(torch.ones(10))
if RANK == 2:
    os.kill(os.getpid(), signal.SIGKILL)


@checks.check
def a_killed_rank_is_named_on_all_others():
    begin = time.monotonic()
    text = error_of(lambda: dist.all_reduce(torch.ones(100_000)))
    checks.facts["seconds"] = time.monotonic() - begin
    assert "E_RANK_LOST" in text and "rank 2" in text, text


checks.report()
