#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of the demo: trains a network of 1.1 million parameters on real handwritten digits with DDP.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the environment, as with torchrun. Every rank prints one
JSON object at its end, rank 0 shows progress on stderr. The seeds are fixed, so runs over different backends
start from the same parameters and see the same batches.
"""
import argparse
import datetime
import hashlib
import json
import os
import statistics
import sys
import time

import numpy
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits

SEED = 20240117
TEST_SHARE = 0.2
WARM_UP_STEPS = 3


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=["mlnet", "gloo"], default="mlnet")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=128, help="samples per step over all ranks")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for any single collective")
    return parser.parse_args()


def load_data():
    """(train inputs, train labels, test inputs, test labels), the same on every rank."""
    digits = load_digits()
    order = numpy.random.RandomState(SEED).permutation(len(digits.target))
    inputs = torch.tensor(digits.data[order] / 16.0 - 0.5, dtype=torch.float32)
    labels = torch.tensor(digits.target[order], dtype=torch.int64)
    split = int(len(order) * (1 - TEST_SHARE))
    return inputs[:split], labels[:split], inputs[split:], labels[split:]


def build_model(hidden):
    torch.manual_seed(SEED)
    return torch.nn.Sequential(
        torch.nn.Linear(64, hidden), torch.nn.ReLU(),
        torch.nn.Linear(hidden, hidden), torch.nn.ReLU(),
        torch.nn.Linear(hidden, 10))


def show_progress(text, last=False):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="\n" if last else "", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def train(model, data, args, rank, world_size):
    """Returns the seconds that each step took on this rank."""
    inputs, labels = data
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    batches = len(labels) // args.batch
    # A falling rate lets the accuracy settle, so that it can be compared between runs.
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=args.epochs * batches)
    seconds = []
    for epoch in range(args.epochs):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED + epoch))
        for batch in range(batches):
            # Each rank takes its own samples of the batch; DDP averages the gradients.
            mine = order[batch * args.batch:(batch + 1) * args.batch][rank::world_size]
            begin = time.perf_counter()
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs[mine]), labels[mine])
            loss.backward()
            optimizer.step()
            schedule.step()
            seconds.append(time.perf_counter() - begin)
            if rank == 0:
                step, steps = len(seconds), args.epochs * batches
                if sys.stderr.isatty() or step % 10 == 0 or step == steps:
                    show_progress(f"{args.backend}: step {step}/{steps}  loss {loss.item():.3f}  "
                                  f"{statistics.median(seconds) * 1e3:.1f} ms per step", step == steps)
    return seconds


def accuracy(model, inputs, labels):
    with torch.no_grad():
        return (model(inputs).argmax(dim=1) == labels).float().mean().item()


def parameters_sha256(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def main():
    args = parse_arguments()
    torch.set_num_threads(1)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if args.backend == "mlnet":
        import mlnet
    dist.init_process_group(args.backend, timeout=datetime.timedelta(seconds=args.timeout))

    train_inputs, train_labels, test_inputs, test_labels = load_data()
    model = torch.nn.parallel.DistributedDataParallel(build_model(args.hidden))
    if args.backend == "mlnet":
        # Late in this training a block of gradients spans 20 powers of two: the block's own accuracy is enough.
        from mlnet.hooks import CompressState, compress_hook
        model.register_comm_hook(CompressState(wire="int32", feedback=False), compress_hook)
    seconds = train(model, (train_inputs, train_labels), args, rank, world_size)
    dist.barrier()
    result = {
        "rank": rank,
        "backend": args.backend,
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": len(seconds),
        "accuracy": accuracy(model.module, test_inputs, test_labels),
        "step_ms": statistics.median(seconds[WARM_UP_STEPS:]) * 1e3,
        "parameters_sha256": parameters_sha256(model.module),
        "stats": mlnet.stats() if args.backend == "mlnet" else {},
    }
    print(json.dumps(result), flush=True)
    dist.barrier()  # rank 0 holds the store: nobody may still need it when it goes
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
