#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same models with and without mlnet.schedule in a lab: the same bits, and how long a step takes.

    scheduled.py            digits CNN and transformer, 4 workers, on links that are the limit; prints a table, writes JSON
    scheduled.py --short    a few steps: are the bits the same?

The variants take turns in one process per rank, so that all meet the same machine. Exit code 1 if a bit differs.
"""
import argparse
import hashlib
import json
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

VARIANTS = ["plain", "order", "overlap"]
TASKS = ["cnn", "characters"]
BUCKET_MB = 0.1  # these models are small; DDP's default of 25 would make one bucket of them
WARM_UP = 3


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=TASKS)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rate", default="40mbit")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--rank-of", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.short:
        args.steps, args.rounds, args.rate, args.workers = 8, 1, "200mbit", 2
    return args


def build(task):
    """The task's model, wider: what is on the wire shall be the larger part of a step."""
    import torch
    from tasks import Characters, Transformer
    torch.manual_seed(1)
    if isinstance(task, Characters):
        return Transformer(task.symbols, task.context, width=128)
    nn = torch.nn
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10))


def run_variant(mlnet, task, variant, args):
    import torch
    from train import batches
    model = torch.nn.parallel.DistributedDataParallel(build(task), bucket_cap_mb=BUCKET_MB)
    optimizer = task.optimizer(model, task.momentum or 0.0)
    schedule = None
    if variant != "plain":
        schedule = mlnet.schedule(model, optimizer if variant == "overlap" else None, partition=64 << 10, credit=512 << 10)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    seconds, last = [], time.perf_counter()
    for batch in batches(task, 1, args.steps):
        optimizer.zero_grad()
        task.loss(model, batch[rank::size]).backward()
        optimizer.step()
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
    if schedule is not None:
        schedule.synchronize()
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    if schedule is not None:
        schedule.close()
    return {"variant": variant, "parameters": sum(p.numel() for p in model.parameters()), "sha256": digest,
            "step_ms": statistics.median(seconds[WARM_UP:]) * 1e3}


def rank_main(args):
    import datetime

    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    import mlnet
    from tasks import TASKS as ALL
    dist.init_process_group("mlnet", timeout=datetime.timedelta(seconds=120))
    dist._DEFAULT_FIRST_BUCKET_BYTES = int(BUCKET_MB * (1 << 20))
    runs = []
    for name in args.tasks:
        task = ALL[name]()
        for _ in range(args.rounds):
            for variant in VARIANTS:
                runs.append({"task": name, **run_variant(mlnet, task, variant, args)})
    dist.barrier()
    print(json.dumps({"runs": runs}), flush=True)
    mlnet.close()


def summary(ranks):
    rows = []
    keys = dict.fromkeys((run["task"], run["variant"]) for run in ranks[0])
    for task, variant in keys:
        mine = [run for runs in ranks for run in runs if (run["task"], run["variant"]) == (task, variant)]
        slowest = [max(times) for times in zip(*([run["step_ms"] for run in runs if (run["task"], run["variant"]) == (task, variant)] for runs in ranks))]
        rows.append({"task": task, "variant": variant, "parameters": mine[0]["parameters"], "step_ms": statistics.median(slowest),
                     "least_ms": min(slowest), "most_ms": max(slowest), "sha256": sorted({run["sha256"] for run in mine})})
    return rows


def lab_main(args):
    from torch_lab import Lab
    lab = Lab(args.workers, rate=args.rate, aggregator_rate=args.rate)
    try:
        words = ["--rank-of", "--steps", str(args.steps), "--rounds", str(args.rounds), "--tasks", ",".join(args.tasks)]
        found = lab.session("training/scheduled", {"SCHEDULED_ARGS": " ".join(words), "MLNET_JOB": "scheduled"}, args.workers, timeout_s=1200)
    finally:
        lab.down()
    for rank, data in enumerate(found):
        if data["returncode"] != 0 or not data["result"]:
            sys.exit(f"rank {rank} failed:\n{data['stderr']}")
    rows = summary([data["result"]["runs"] for data in found])
    print(f"{'task':12} {'variant':8} {'parameters':>10} {'ms a step':>10} {'least':>8} {'most':>8}  bits")
    failed = False
    for row in rows:
        plain = next(r for r in rows if r["task"] == row["task"] and r["variant"] == "plain")
        is_same = row["sha256"] == plain["sha256"] and len(row["sha256"]) == 1
        failed |= not is_same
        row["is_same"], row["of_plain"] = is_same, row["step_ms"] / plain["step_ms"]
        print(f"{row['task']:12} {row['variant']:8} {row['parameters']:10} {row['step_ms']:10.1f} {row['least_ms']:8.1f} {row['most_ms']:8.1f}  "
              f"{'the same' if is_same else 'DIFFERENT'}, {row['of_plain']:.2f} of plain")
    if args.out:
        args.out.write_text(json.dumps({"workers": args.workers, "rate": args.rate, "steps": args.steps, "rows": rows}, indent=1))
    same = sum(row["is_same"] for row in rows)
    print(f"{same} passed, {len(rows) - same} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if "SCHEDULED_ARGS" in os.environ:
        sys.argv[1:] = os.environ["SCHEDULED_ARGS"].split()
    arguments = parse_arguments()
    sys.exit(rank_main(arguments) if arguments.rank_of else lab_main(arguments))
