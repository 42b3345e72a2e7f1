# SPDX-License-Identifier: Apache-2.0
"""Rank program under torchrun: in the first attempt rank 3 is killed in the middle of its sums; the next one goes through."""
import json
import os
import signal

import torch
import torch.distributed as dist

import mlnet

dist.init_process_group("mlnet")
rank, size, attempt = dist.get_rank(), dist.get_world_size(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
for step in range(20):
    if attempt == 0 and rank == 3 and step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    values = torch.arange(50_000) * (rank + 1) + step
    dist.all_reduce(values)
    expected = torch.arange(50_000) * (size * (size + 1) // 2) + size * step
    assert torch.equal(values, expected), f"rank {rank}, attempt {attempt}, step {step}"
print(json.dumps({"rank": rank, "size": size, "attempt": attempt, "stats": mlnet.stats()}), flush=True)
dist.destroy_process_group()
