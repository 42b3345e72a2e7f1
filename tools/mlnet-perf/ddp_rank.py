#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of tools/bench's ddp part: steps of DistributedDataParallel that are nearly all communication.

The gradient of the loss is a vector that is a pure function of the rank, so every rank knows the mean that must come out.
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the environment. Prints one JSON object: seconds of each step, seconds
of one without communication, elements checked and wrong.
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist

TENSORS = 8
MOST_OFF = {"gloo": 1e-6, "int32": 1e-6, "int16": 1e-3}  # of the largest magnitude; int16: 4 ranks, and what feedback adds


class Model(torch.nn.Module):
    def __init__(self, elements):
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(elements // TENSORS)) for _ in range(TENSORS))

    def forward(self, gradients):
        return sum(part.dot(gradient) for part, gradient in zip(self.parts, gradients))


def gradients_of(rank, elements):
    generator = torch.Generator().manual_seed(1000 + rank)
    return [torch.randn(elements // TENSORS, generator=generator) for _ in range(TENSORS)]


def step(model, gradients):
    start = time.perf_counter()
    model.zero_grad(set_to_none=False)
    model(gradients).backward()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wire", choices=MOST_OFF, required=True, help="gloo, or mlnet with this wire type")
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if options.wire == "gloo":
        dist.init_process_group("gloo")
    else:
        import mlnet  # noqa: F401  (registers the backend)
        dist.init_process_group("mlnet")
    model = torch.nn.parallel.DistributedDataParallel(Model(options.elements))
    if options.wire != "gloo":
        from mlnet.hooks import CompressState, compress_hook
        state = CompressState(wire=options.wire, feedback=options.wire != "int32")
        model.register_comm_hook(state, compress_hook)
    gradients = gradients_of(rank, options.elements)
    for _ in range(2):  # DDP orders its buckets in the first
        step(model, gradients)
    seconds = []
    for _ in range(options.steps):
        dist.barrier()
        seconds.append(step(model, gradients))
    # The last step's, before one without communication adds to them.
    found = [part.grad.clone() for part in model.module.parts]
    with model.no_sync():
        alone = step(model, gradients)
    wrong = 0
    expected = [sum(parts) / world_size for parts in zip(*(gradients_of(r, options.elements) for r in range(world_size)))]
    for got, right in zip(found, expected):
        wrong += int((~((got - right).abs() <= MOST_OFF[options.wire] * right.abs().max() * world_size)).sum())
    print(json.dumps({"seconds": seconds, "alone_s": alone, "wrong": wrong, "checked": options.elements}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
