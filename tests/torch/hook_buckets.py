# SPDX-License-Identifier: Apache-2.0
"""For the hooks' rank programs: buckets without DDP, inputs that every rank knows of every rank, a small model."""
import datetime
import os

import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rank_checks import RANK, SIZE

BACKEND = os.environ.get("BACKEND", "mlnet")
SEED = 20240117


def join_backend():
    torch.set_num_threads(1)
    import mlnet
    dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=30))
    return mlnet


class Bucket:
    """What a hook sees of a bucket of DDP."""

    def __init__(self, parameters, gradients, index=0, last=True):
        self._parameters, self._index, self._last = parameters, index, last
        self._buffer = torch.as_tensor(gradients).clone()

    def buffer(self):
        return self._buffer

    def parameters(self):
        return self._parameters

    def index(self):
        return self._index

    def is_last(self):
        return self._last


def parameters_of(*lengths):
    return [torch.zeros(length) for length in lengths]


def gradients_of_all_ranks(length, step, spread=3.0):
    """float32[rank, element], with magnitudes over several powers of ten; the same array on every rank."""
    random = numpy.random.RandomState(SEED + step)
    magnitudes = numpy.exp(spread * random.randn(length))
    return (random.randn(SIZE, length) * magnitudes).astype(numpy.float32)


def average_of(hook, state, parameters, gradients, **place):
    """What the hook makes of this rank's row of `gradients`."""
    return hook(state, Bucket(parameters, gradients[RANK], **place)).wait().clone()


def same_bits(ours, expected):
    ours, expected = numpy.asarray(ours), numpy.asarray(expected)
    assert ours.dtype == expected.dtype and ours.shape == expected.shape, (ours.dtype, ours.shape, expected.shape)
    differing = numpy.flatnonzero(ours.view(numpy.int32) != expected.view(numpy.int32))
    assert not len(differing), (f"seed {SEED}: {len(differing)} elements differ, first {differing[0]}: "
                                f"{ours[differing[0]]!r}, expected {expected[differing[0]]!r}")


def train(register, steps=30, momentum=0.0, dtype=torch.float32, **options):
    """Trains a small model with DDP; `register(model)` may add a hook. Returns its parameters and the losses."""
    torch.manual_seed(SEED)
    model = torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 5)).to(dtype)
    model = DistributedDataParallel(model, **options)
    register(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    data = torch.Generator().manual_seed(SEED + RANK)
    x = torch.randn(64, 20, generator=data).to(dtype)
    y = x[:, :5].argmax(dim=1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.cat([p.detach().view(-1) for p in model.parameters()]), losses


def same_on_all_ranks(tensor):
    everyone = [torch.empty_like(tensor) for _ in range(SIZE)]
    dist.all_gather(everyone, tensor)
    return all(torch.equal(other, tensor) for other in everyone)
