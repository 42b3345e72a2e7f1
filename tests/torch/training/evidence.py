#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same models over float32 Gloo and over mlnet's narrow lanes in a lab, and judges the difference.

Writes evidence.json and plots into --out, prints a table and PASS or FAIL per criterion. Exit code: 0 all passed,
1 one failed or something broke, 2 usage. Needs root and a build (--build or $MLNET_BUILD).
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile

import report
from train import VARIANTS

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "userspace" / "torch" / "demo"))
from run_demo import DemoError, say, stop_ranks, train_both, wait_for_ranks  # noqa: E402

TASKS = ["mlp", "cnn", "words", "characters"]
SHORT = {"tasks": ["mlp", "words"], "num_seeds": 1, "steps": 40}
PORTS = {"gloo": 29500, "mlnet": 29501}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words = lambda text: text.split(",")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("MLNET_BUILD", "build")))
    parser.add_argument("--out", type=pathlib.Path, help="folder of the results (default BUILD/training)")
    parser.add_argument("--short", action="store_true", help="one seed, few steps: does everything train at all? Ignored with MLNET_LONG=1")
    parser.add_argument("--tasks", type=words, default=TASKS)
    parser.add_argument("--variants", type=words, default=list(VARIANTS))
    parser.add_argument("--num-seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, help="instead of each task's own number")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rate", default="500mbit")
    parser.add_argument("--agg-rate", default="2gbit")
    parser.add_argument("--loss", type=float, default=0.0)
    args = parser.parse_args()
    args.short = args.short and os.environ.get("MLNET_LONG") != "1"
    if args.short:
        for name, value in SHORT.items():
            setattr(args, name, value)
    for given, known in ((args.tasks, TASKS), (args.variants, VARIANTS)):
        for name in given:
            if name not in known:
                parser.error(f"{name} is none of {', '.join(known)}")
    if report.BASE not in args.variants:
        parser.error(f"--variants must include {report.BASE}: everything is compared with it")
    args.build = args.build.resolve()
    args.out = args.out or args.build / "training"
    args.seeds = list(range(args.first_seed, args.first_seed + args.num_seeds))
    return args


def train(lab, hosts, backend, args):
    """Runs all variants of one backend, one rank per host; returns the runs of all ranks."""
    variants = [variant for variant in args.variants if VARIANTS[variant][0] == backend]
    if not variants:
        return []
    say(f"{backend}: {', '.join(variants)} on {', '.join(args.tasks)}, seeds {args.seeds}")
    command = ["/usr/bin/python3", str(HERE / "train.py"), "--tasks", ",".join(args.tasks), "--variants",
               ",".join(variants), "--seeds", ",".join(map(str, args.seeds)),
               *(["--steps", str(args.steps)] if args.steps else [])]
    with tempfile.TemporaryDirectory(prefix="mlnet-training-") as folder:
        ranks = []
        try:
            for rank, host in enumerate(hosts):
                environment = {
                    "RANK": rank, "WORLD_SIZE": len(hosts), "MASTER_ADDR": hosts[0]["address"],
                    "MASTER_PORT": PORTS[backend], "OMP_NUM_THREADS": 1, "GLOO_SOCKET_IFNAME": host["iface"],
                    "PYTHONPATH": args.build / "python", "PYTHONDONTWRITEBYTECODE": 1, "MLNET_JOB": "training",
                }
                out = open(pathlib.Path(folder) / f"{rank}.out", "w+", encoding="utf-8")
                err = open(pathlib.Path(folder) / f"{rank}.err", "w+", encoding="utf-8") if rank else None
                ranks.append((lab.spawn(host["name"], environment, [*command, "--iface", host["iface"]], stdout=out,
                                        stderr=err), out, err))
            wait_for_ranks(ranks)
        finally:
            stop_ranks(ranks)
        runs = []
        for _, out, _ in ranks:
            out.seek(0)
            runs += [json.loads(line) for line in out.read().splitlines() if line.startswith("{")]
    expected = len(hosts) * len(args.tasks) * len(variants) * len(args.seeds)
    if len(runs) != expected:
        raise DemoError(f"{backend}: {len(runs)} runs were reported, {expected} expected")
    return runs


def main():
    args = parse_arguments()
    try:
        mlnet, gloo = train_both(args, "training", train)
    except DemoError as error:
        say(f"failed: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    evidence = report.Evidence(gloo + mlnet)
    rows = list(evidence.rows())
    verdicts = report.judge(evidence, rows, args.short)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "evidence.json").write_text(json.dumps({
        "workers": args.workers, "seeds": args.seeds, "short": args.short, "rows": rows,
        "criteria": [{"passed": passed, "text": text} for passed, text in verdicts]}, indent=1), encoding="utf-8")
    report.plot(evidence, rows, args.out)
    report.print_table(evidence, rows)
    for passed, text in verdicts:
        print(f"{'PASS' if passed else 'FAIL'}  {text}")
    print(f"results and plots: {args.out}", flush=True)
    return 0 if all(passed for passed, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
