# SPDX-License-Identifier: Apache-2.0
"""torch's own backend suite over mlnet, against what Gloo does in it; see README.md."""
import argparse
import json
import os
import pathlib
import re
import shutil
import sys
import time

from suite_run import BUILD, HERE, Lab, run_tests

EXPECTATION = HERE / "expectation.txt"
SHORT_FORM = HERE / "short_form.txt"
SEED = 1234  # torch's own
BAD = ("failed", "error")


def lines_of(path):
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def read_expectation():
    """{test: outcome}; the file has a section "[outcome: reason]" for each kind."""
    expected, outcome = {}, None
    for line in lines_of(EXPECTATION):
        if line.startswith("["):
            outcome = re.match(r"\[(\w+)", line)[1]
        else:
            expected[line] = outcome
    return expected


def write_expectation(results):
    sections = {}
    for name, result in sorted(results.items()):
        reason = f": {result['reason']}" if result["outcome"] == "skipped" else ""
        sections.setdefault(f"[{result['outcome']}{reason}]", []).append(name)
    text = ("# SPDX-License-Identifier: Apache-2.0\n"
            "# What Gloo makes of each test, torch 1.13, 3 ranks, no GPU.\n"
            "# Made by: run_suite.py --backend gloo --full --write-expectation\n")
    for section, names in sorted(sections.items()):
        text += "\n" + section + "\n" + "".join(f"{name}\n" for name in names)
    EXPECTATION.write_text(text)


def judge(results, expected, full):
    """What is worse than with Gloo: {test: verdict}."""
    verdicts = {}
    for name, result in results.items():
        if name not in expected:
            verdicts[name] = "not in the expectation"
        elif result["outcome"] in BAD and expected[name] not in BAD:
            verdicts[name] = f"{result['outcome']}, {expected[name]} with Gloo"
        elif result["outcome"] == "skipped" and expected[name] != "skipped":
            verdicts[name] = f"skipped, {expected[name]} with Gloo"
    if full:
        verdicts.update((name, "in the expectation, but not in this suite") for name in expected if name not in results)
    return verdicts


def table(results):
    """One line a test, and under it why it is not passed."""
    text = ""
    for name, result in sorted(results.items()):
        text += f"{result['outcome']:8} {result['seconds']:6.1f} s  {name}\n"
        text += "".join(f"    {line}\n" for line in result["reason"].splitlines())
    return text


def closing(results, verdicts, seconds):
    text = ""
    for name, verdict in sorted(verdicts.items()):
        text += f"FAIL: {name}: {verdict}\n"
        text += "".join(f"    {line}\n" for line in results.get(name, {}).get("reason", "").splitlines()[-12:])
    outcomes = [result["outcome"] for result in results.values()]
    text += ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in ("passed", "skipped", *BAD)) + "\n"
    # In the form that tools/count-tests.py counts; what Gloo skips or fails as well does not count.
    good = [name for name, result in results.items() if result["outcome"] == "passed" and name not in verdicts]
    text += f"Ran {len(good) + len(verdicts)} tests in {seconds:.1f}s\n\n"
    return text + (f"FAILED (failures={len(verdicts)})\n" if verdicts else "OK\n")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", metavar="TEST", help="only these (default: the short form)")
    parser.add_argument("--full", action="store_true", help="the whole suite; also with MLNET_LONG=1")
    parser.add_argument("--backend", default="mlnet", help="mlnet or gloo")
    parser.add_argument("--out", type=pathlib.Path, help="folder of results.json, summary.txt and log")
    parser.add_argument("--limit", type=int, default=90, metavar="S", help="seconds for one test (default 90)")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--write-expectation", action="store_true", help=f"write {EXPECTATION.name} from this run")
    options = parser.parse_args()
    options.full = (options.full or os.environ.get("MLNET_LONG") == "1") and not options.tests
    if options.write_expectation and not (options.full and options.backend == "gloo"):
        parser.error("--write-expectation goes with --backend gloo --full")
    return options


def main():
    options = parse_arguments()
    tests = options.tests or ([] if options.full else lines_of(SHORT_FORM))
    folder = (options.out or BUILD / f"torch-suite-{options.backend}").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log").unlink(missing_ok=True)
    what = f"{len(tests) or 'all'} tests"
    print(f"backend {options.backend}, seed {options.seed}, {what}, log {folder / 'log'}", flush=True)
    count = 0

    def progress(name, result):
        nonlocal count
        count += 1
        if result["outcome"] != "skipped":
            print(f"{count:3} {name} ... {result['outcome']} ({result['seconds']:.1f} s)", flush=True)

    begin = time.monotonic()
    try:
        with Lab(folder) as lab:
            results = run_tests(lab, options.backend, folder, tests, options.limit, options.seed, progress)
    finally:
        shutil.rmtree(folder / "tmp", ignore_errors=True)
    (folder / "results.json").write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    if options.write_expectation:
        write_expectation(results)
    verdicts = judge(results, read_expectation(), options.full)
    text = closing(results, verdicts, time.monotonic() - begin)
    (folder / "summary.txt").write_text(table(results) + "\n" + text)
    print(text, end="")
    return 1 if verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
