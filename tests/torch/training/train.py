#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of the training evidence: trains tasks with DDP, one variant and seed after the other.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the environment, as with torchrun. Each run prints one JSON
object. A seed decides the first parameters and the batches, so runs of the same seed differ in the variant alone.
"""
import argparse
import datetime
import hashlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tasks import TASKS

TOPK_RATIO = 0.01
VARIANTS = {  # name: (backend, arguments of CompressState or None)
    "float32": ("gloo", None),
    "int32": ("mlnet", None),
    "int16": ("mlnet", {"wire": "int16"}),
    "int8": ("mlnet", {"wire": "int8"}),
    "int8-no-feedback": ("mlnet", {"wire": "int8", "feedback": False}),
    "topk": ("mlnet", None),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words = lambda text: text.split(",")
    parser.add_argument("--tasks", type=words, default=["mlp"], help=f"of {', '.join(TASKS)}")
    parser.add_argument("--variants", type=words, default=["int32"], help=f"of one backend, of {', '.join(VARIANTS)}")
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[1])
    parser.add_argument("--steps", type=int, help="instead of the task's own number")
    parser.add_argument("--iface", default="eth0", help="interface whose bytes are counted")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for any single collective")
    args = parser.parse_args()
    for name in args.tasks + args.variants:
        if name not in TASKS and name not in VARIANTS:
            parser.error(f"there is no task or variant {name}")
    backends = {VARIANTS[variant][0] for variant in args.variants}
    if len(backends) != 1:
        parser.error("all variants must be of one backend")
    args.backend, = backends
    return args


def compressed(model, variant, task, steps):
    """`model` with the variant's communication hook; returns the momentum that is left for the optimiser."""
    options = VARIANTS[variant][1]
    if options is not None:
        from mlnet.hooks import CompressState, compress_hook
        model.register_comm_hook(CompressState(**options), compress_hook)
    if variant == "topk":
        from mlnet.hooks import TopKState, topk_hook
        state = TopKState(ratio=TOPK_RATIO, warmup_steps=steps // 4, momentum=task.momentum or 0.0)
        model.register_comm_hook(state, topk_hook)
        return 0.0
    return task.momentum


def batches(task, seed, steps):
    """Indices of `steps` batches, the same on every rank; each sample once per pass."""
    generator = torch.Generator().manual_seed(seed)
    per_pass = task.num_samples // task.batch
    for step in range(steps):
        if step % per_pass == 0:
            order = torch.randperm(task.num_samples, generator=generator)
        begin = step % per_pass * task.batch
        yield order[begin:begin + task.batch]


def bytes_on_the_wire(iface):
    """(sent, received) by the interface so far."""
    with open("/proc/net/dev", encoding="ascii") as lines:
        for line in lines:
            name, _, counters = line.partition(":")
            if name.strip() == iface:
                fields = counters.split()
                return int(fields[8]), int(fields[0])
    raise RuntimeError(f"there is no interface {iface}")


def parameters_sha256(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def run(task, variant, seed, steps, args):
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(task.build(seed))
    optimizer = task.optimizer(model, compressed(model, variant, task, steps))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=steps)
    losses = []
    dist.barrier()
    sent, received = bytes_on_the_wire(args.iface)
    begin = time.perf_counter()
    for batch in batches(task, seed, steps):
        optimizer.zero_grad()
        loss = task.loss(model, batch[rank::size])
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    seconds = time.perf_counter() - begin
    sent_after, received_after = bytes_on_the_wire(args.iface)
    dist.barrier()
    return {
        "rank": rank, "variant": variant, "seed": seed, "steps": steps,
        "parameters": sum(p.numel() for p in model.parameters()),
        "quality": task.quality(model.module), "losses": [round(loss, 5) for loss in losses], "seconds": seconds,
        "bytes_sent": sent_after - sent, "bytes_received": received_after - received,
        "parameters_sha256": parameters_sha256(model.module),
    }


def main():
    args = parse_arguments()
    torch.set_num_threads(1)
    if args.backend == "mlnet":
        import mlnet
        if any(VARIANTS[variant][1] for variant in args.variants) and not hasattr(mlnet, "all_reduce"):
            sys.exit("this build of mlnet has no mlnet.all_reduce, so it cannot send int16 or int8")
    dist.init_process_group(args.backend, timeout=datetime.timedelta(seconds=args.timeout))
    for name in args.tasks:
        task = TASKS[name]()
        for seed in args.seeds:
            for variant in args.variants:
                result = run(task, variant, seed, args.steps or task.steps, args)
                print(json.dumps({"task": name, **result}), flush=True)
                if os.environ["RANK"] == "0":
                    print(f"{name} {variant} seed {seed}: quality {result['quality']:.2f}, "
                          f"{result['seconds']:.1f} s", file=sys.stderr, flush=True)
    dist.barrier()  # rank 0 holds the store: nobody may still need it when it goes
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
