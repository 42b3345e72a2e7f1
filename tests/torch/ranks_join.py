# SPDX-License-Identifier: Apache-2.0
"""Rank program: joins within $JOIN_TIMEOUT_S, and sums one tensor."""
import os

import torch
import torch.distributed as dist

from rank_checks import SIZE, Checks, join

checks = Checks()


@checks.check
def the_job_starts_and_sums():
    join(float(os.environ["JOIN_TIMEOUT_S"]))
    tensor = torch.arange(5000, dtype=torch.int32)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, SIZE * torch.arange(5000, dtype=torch.int32)), tensor


checks.report()
