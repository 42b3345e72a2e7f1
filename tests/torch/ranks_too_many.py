# SPDX-License-Identifier: Apache-2.0
"""Rank program: a world that is larger than the lanes of small integers have room for. One process tries two ranks."""
import datetime
import time

import torch
import torch.distributed as dist

from rank_checks import Checks, error_of

import mlnet  # noqa: F401  registers the backend

checks = Checks()
RANKS_MAX = 256
TIMEOUT = datetime.timedelta(seconds=20)
store = dist.HashStore()  # torch's TCP store would wait for 257 processes before it asked the backend
store.set_timeout(TIMEOUT)


def error_of_joining(rank, world_size):
    # Without a name torch numbers its attempts, and the second would not find the job of the first in the store.
    return error_of(lambda: dist.init_process_group("mlnet", store=store, rank=rank, world_size=world_size,
                                                    timeout=TIMEOUT, group_name="too_many"))


@checks.check
def T25_a_world_of_257_is_refused_at_once_on_first_and_last_rank_with_the_limit():
    for rank in (0, RANKS_MAX):
        begin = time.monotonic()
        text = error_of_joining(rank, RANKS_MAX + 1)
        assert "E_INVALID" in text and f"rank {rank} of 257" in text, text
        assert "world_size 257 is not within 1..256" in text, text
        assert time.monotonic() - begin < TIMEOUT.total_seconds() / 4, "refused only after waiting"


@checks.check
def T25_the_refusal_leaves_nothing_behind():
    dist.init_process_group("mlnet", store=dist.HashStore(), rank=0, world_size=1, timeout=TIMEOUT)
    tensor = torch.arange(1000.0)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.arange(1000.0))
    dist.destroy_process_group()


checks.report()
