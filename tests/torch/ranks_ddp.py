# SPDX-License-Identifier: Apache-2.0
"""Rank program: DistributedDataParallel over mlnet against the same model over Gloo, in one process."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rank_checks import RANK, SIZE, Checks, join

mlnet = join()
checks = Checks()
gloo = dist.new_group(backend="gloo")


class Branches(torch.nn.Module):
    """Uses only one of its two branches per step: the other's parameters are unused."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(20, 30), torch.nn.Linear(20, 30)
        self.last = torch.nn.Sequential(torch.nn.BatchNorm1d(30), torch.nn.ReLU(), torch.nn.Linear(30, 5))
        self.use_first = True

    def forward(self, x):
        return self.last((self.first if self.use_first else self.second)(x))


def train(group, steps=6, **options):
    torch.manual_seed(7)  # the same parameters for both; DDP broadcasts rank 0's
    model = DistributedDataParallel(Branches(), process_group=group, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = torch.Generator().manual_seed(100 + RANK)
    for step in range(steps):
        model.module.use_first = not options or (step + RANK) % 2 == 0
        x, y = torch.randn(16, 20, generator=data), torch.randint(5, (16,), generator=data)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return torch.cat([p.detach().view(-1) for p in model.parameters()])


def compare(**options):
    ours, theirs = train(None, **options), train(gloo, **options)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    everyone = [torch.empty_like(ours) for _ in range(SIZE)]
    dist.all_gather(everyone, ours, group=gloo)
    assert all(torch.equal(other.view(torch.int32), ours.view(torch.int32)) for other in everyone), "bits differ"
    torch.manual_seed(7)
    start = torch.cat([p.detach().view(-1) for p in Branches().parameters()])
    assert (ours - start).abs().max() > 1e-3, "nothing was learnt"


@checks.check
def ddp_learns_what_it_learns_over_gloo():
    # All parameters take part: the second branch has none here.
    original = Branches.forward
    Branches.forward = lambda self, x: self.last(self.first(x) + self.second(x))
    try:
        compare()
    finally:
        Branches.forward = original


@checks.check
def ddp_finds_unused_parameters():
    compare(find_unused_parameters=True)


@checks.check
def ddp_broadcasts_the_parameters_of_rank_0():
    torch.manual_seed(RANK)
    model = DistributedDataParallel(torch.nn.Linear(100, 100))
    torch.manual_seed(0)
    assert torch.equal(model.module.weight, torch.nn.Linear(100, 100).weight)


@checks.check
def ddp_needs_nothing_from_the_inner_gloo_group():
    stats = mlnet.stats()
    assert stats["delegated_calls"] == 0 and stats["summed_in_kernel"] > 0, stats


dist.barrier()
checks.report()
dist.destroy_process_group()
