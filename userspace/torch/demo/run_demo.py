#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Brings a lab up, trains over mlnet and over Gloo in it, compares, and takes the lab down again.

tools/demo builds everything and then becomes this program. Only the standard library: torch runs in the ranks.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MIN_ACCURACY = 0.95
MAX_DISTANCE = 0.01
GRACE_AFTER_FAILURE_S = 20  # what the other ranks get to find out themselves and say so
STORE_PORTS = {"mlnet": 29500, "gloo": 29501}


class DemoError(Exception):
    pass


def say(text):
    print(f"demo: {text}", file=sys.stderr, flush=True)


class Lab:
    """A lab of our own; leaving the `with` block removes it, whatever happened inside."""

    def __init__(self, build, name):
        self.program = str(build / "bin" / "mlnet-lab")
        self.name = name

    def run(self, *arguments):
        done = subprocess.run([self.program, "--name", self.name, "-j", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise DemoError(f"mlnet-lab {' '.join(arguments)} failed ({done.returncode}): {done.stderr.strip()}")
        return done.stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.run([self.program, "--name", self.name, "down"], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def up(self, args):
        say(f"lab of {args.workers} workers ({args.rate}) and 1 aggregator ({args.agg_rate}), "
            f"{args.loss:g} % loss on every link")
        self.run("up", "--workers", str(args.workers), "--aggregators", "1", "--rate", args.rate,
                 "--agg-rate", args.agg_rate, *(["--loss", f"{args.loss:g}"] if args.loss else []))

    def worker_hosts(self):
        hosts = json.loads(self.run("status"))["hosts"]
        return [host for host in hosts if host["role"] == "worker"]

    def spawn(self, host, environment, command, **streams):
        pairs = [f"{key}={value}" for key, value in environment.items()]
        return subprocess.Popen([self.program, "--name", self.name, "exec", host, "--", "env", *pairs, *command],
                                **streams)


def start_ranks(lab, hosts, backend, args, folder):
    """[(process, stdout file, stderr file)], one rank per host; rank 0's progress goes to the terminal."""
    ranks = []
    for rank, host in enumerate(hosts):
        environment = {
            "RANK": rank, "WORLD_SIZE": len(hosts), "MASTER_ADDR": hosts[0]["address"],
            "MASTER_PORT": STORE_PORTS[backend], "OMP_NUM_THREADS": 1, "GLOO_SOCKET_IFNAME": host["iface"],
            "PYTHONPATH": args.build / "python", "MLNET_JOB": "digits",
        }
        out = open(folder / f"{backend}-{rank}.out", "w+")
        err = open(folder / f"{backend}-{rank}.err", "w+") if rank else None
        command = ["/usr/bin/python3", str(HERE / "train_digits.py"), "--backend", backend,
                   "--epochs", str(args.epochs)]
        ranks.append((lab.spawn(host["name"], environment, command, stdout=out, stderr=err), out, err))
    return ranks


def wait_for_ranks(ranks):
    """Waits for all; once one has failed, the others get a little time, then they are ended."""
    deadline = None
    while any(process.poll() is None for process, _, _ in ranks):
        if deadline is None and any(process.poll() not in (None, 0) for process, _, _ in ranks):
            deadline = time.monotonic() + GRACE_AFTER_FAILURE_S
        if deadline is not None and time.monotonic() > deadline:
            break
        time.sleep(0.1)
    stop_ranks(ranks)
    for rank, (process, _, err) in enumerate(ranks):
        if process.returncode == 0:
            continue
        text = "see above"
        if err is not None:
            err.seek(0)
            text = err.read().strip()[-2000:]
        raise DemoError(f"rank {rank} failed with exit code {process.returncode}: {text}")


def stop_ranks(ranks):
    for process, _, _ in ranks:
        if process.poll() is None:
            process.kill()
    for process, _, _ in ranks:
        process.wait()


def train(lab, hosts, backend, args):
    """The results of all ranks, in rank order."""
    say(f"training over {backend}")
    with tempfile.TemporaryDirectory(prefix="mlnet-demo-") as folder:
        ranks = start_ranks(lab, hosts, backend, args, pathlib.Path(folder))
        try:
            wait_for_ranks(ranks)
        finally:
            stop_ranks(ranks)
        results = []
        for _, out, _ in ranks:
            out.seek(0)
            results.append(json.loads(out.read().splitlines()[-1]))
    return results


def summarise(mlnet, gloo):
    total = lambda counter: sum(rank["stats"][counter] for rank in mlnet)
    step = lambda results: statistics.median(rank["step_ms"] for rank in results)
    return {
        "accuracy_mlnet": mlnet[0]["accuracy"],
        "accuracy_gloo": gloo[0]["accuracy"],
        "step_ms_mlnet": round(step(mlnet), 3),
        "step_ms_gloo": round(step(gloo), 3),
        "summed_in_kernel": total("summed_in_kernel"),
        "summed_in_user_space": total("summed_in_user_space"),
        "retransmits": total("retransmits"),
        "parameters_identical": len({rank["parameters_sha256"] for rank in mlnet}) == 1,
        "delegated_calls": total("delegated_calls"),
    }


def print_table(args, mlnet, summary):
    rows = [
        ("", "mlnet", "Gloo"),
        ("test accuracy", f"{summary['accuracy_mlnet']:.2%}", f"{summary['accuracy_gloo']:.2%}"),
        ("seconds per step (median)", f"{summary['step_ms_mlnet'] / 1e3:.4f}", f"{summary['step_ms_gloo'] / 1e3:.4f}"),
        ("packets summed in the kernel", f"{summary['summed_in_kernel']:,}", "-"),
        ("packets summed in user space", f"{summary['summed_in_user_space']:,}", "-"),
        ("retransmissions", f"{summary['retransmits']:,}", "-"),
        ("parameters bit-identical over ranks", "yes" if summary["parameters_identical"] else "NO", "-"),
    ]
    print(f"\n{mlnet[0]['parameters']:,} parameters, {mlnet[0]['steps']} steps, {args.workers} workers at {args.rate}, "
          f"1 aggregator at {args.agg_rate}, {args.loss:g} % loss\n")
    for name, ours, theirs in rows:
        print(f"  {name:<36}{ours:>14}{theirs:>14}")
    print(flush=True)


def complaints(summary):
    found = []
    if summary["accuracy_mlnet"] < MIN_ACCURACY:
        found.append(f"the accuracy is below {MIN_ACCURACY:.0%}")
    if abs(summary["accuracy_mlnet"] - summary["accuracy_gloo"]) > MAX_DISTANCE + 1e-9:
        found.append("the accuracy is more than one point away from Gloo's")
    if not summary["parameters_identical"]:
        found.append("the ranks hold different parameters")
    if summary["summed_in_user_space"] or summary["delegated_calls"]:
        found.append("not everything was summed in the kernel")
    if not summary["summed_in_kernel"]:
        found.append("nothing was summed in the kernel")
    return found


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--rate", default="500mbit")
    parser.add_argument("--agg-rate", default="2gbit")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check-arguments", action="store_true", help="do nothing else: a wrong one shows before a build")
    args = parser.parse_args()
    args.build = args.build.resolve()
    if not 2 <= args.workers <= 64:
        parser.error("--workers must be 2 to 64")
    if not 0 <= args.loss < 100:
        parser.error("--loss must be 0 to 100")
    return args


def train_both(args, name, train_one):
    """What `train_one(lab, hosts, backend, args)` gives for mlnet and for Gloo, one after the other in a lab of their own."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    with Lab(args.build, f"{name}_{os.getpid()}") as lab:
        lab.up(args)
        hosts = lab.worker_hosts()
        mlnet = train_one(lab, hosts, "mlnet", args)
        # An XDP program on a link switches off its peer's segmentation offload: Gloo's turn is without any.
        lab.run("xdp", "off")
        return mlnet, train_one(lab, hosts, "gloo", args)


def main():
    args = parse_arguments()
    if args.check_arguments:
        return 0
    try:
        mlnet, gloo = train_both(args, "demo", train)
    except DemoError as error:
        say(f"failed: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    summary = summarise(mlnet, gloo)
    print_table(args, mlnet, summary)
    found = complaints(summary)
    for complaint in found:
        say(f"FAILED: {complaint}")
    if args.json:
        print(json.dumps(summary), flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
