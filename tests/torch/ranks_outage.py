# SPDX-License-Identifier: Apache-2.0
"""Rank program: a training that goes on until the file $STOP is there, or for $STEPS steps; the steps done are in $PROGRESS. With $RELEASE, rank 0
makes the last $STEPS_HELD of them only when that file is there."""
import hashlib
import os
import pathlib
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rank_checks import RANK, Checks, join

DIGEST_EVERY = 10
STEP_S = 0.05  # of a training that waits for $STOP: one that is done again takes what it takes
CLASSES = 7

mlnet = join()
checks = Checks()
steps, held = int(os.environ.get("STEPS", 0)), int(os.environ.get("STEPS_HELD", 0))
release = pathlib.Path(os.environ.get("RELEASE", "/"))  # which is there
stop, progress = pathlib.Path(os.environ["STOP"]), pathlib.Path(os.environ["PROGRESS"])


def is_over(done):
    """All ranks hear it from rank 0: they must do the same number of steps."""
    if steps:
        return done == steps
    flag = torch.tensor([RANK == 0 and stop.exists()], dtype=torch.int32)
    dist.broadcast(flag, 0)
    return bool(flag.item())


@checks.check
def training_goes_on():
    torch.manual_seed(11)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, CLASSES)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = torch.Generator().manual_seed(100 + RANK)
    rule = torch.randn(64, CLASSES, generator=torch.Generator().manual_seed(5))
    losses, digests, done, pace = [], [], 0, threading.Event()
    while not is_over(done):
        while RANK == 0 and held and done == steps - held and not release.exists():
            pace.wait(STEP_S)
        x = torch.randn(32, 64, generator=data)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), (x @ rule).argmax(1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        done += 1
        if done % DIGEST_EVERY == 0:
            bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
            digests.append(hashlib.sha256(bits).hexdigest())
        if RANK == 0:
            progress.write_text(str(done), encoding="utf-8")
        if not steps:
            pace.wait(STEP_S)
    checks.facts.update(steps=done, digests=digests, first_loss=losses[0], last_loss=losses[-1])


stats = mlnet.stats()
checks.facts.update(summed_in_kernel=stats["summed_in_kernel"], summed_in_ring=stats["summed_in_ring"], delegated_calls=stats["delegated_calls"])
checks.report()
dist.destroy_process_group()
