#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks slots.pml exhaustively: all rules in force nothing goes wrong, and each rule taken away something does.

usage: check_model.py [--long] [--work DIR] [NAME ...]      names: of the tables below; none: all of them
Prints a line for each; the last one is "model: N passed, N failed".
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import time

STAR, COMBINED, RACK = "-DSHAPE=0", "-DSHAPE=1", "-DSHAPE=2"
UNICAST = "-DMULTICAST=0"

# What must hold, by name: the sizes that take seconds, then those of --long.
HOLDS = {
    "star": [STAR, "-DK=4"],
    "star_two_epochs": [STAR, "-DK=3", "-DEPOCHS=2", "-DHEADER_SEQS=0"],
    "star_with_a_rank_that_breaks_rule_2": [STAR, "-DK=4", "-DHASTY", "-DHEADERS=0"],
    "combined": [COMBINED, "-DK=3"],
    "rack": [RACK, "-DK=3", UNICAST],
    "star_gets_on": [STAR, "-DK=2", "-DLOSSES=2", "-DHEADER_SEQS=1"],
    "star_gets_on_with_doubles": [STAR, "-DK=2", "-DLOSSES=1", "-DDOUBLES=1"],
    "combined_gets_on": [COMBINED, "-DK=2", "-DLOSSES=1"],
    "rack_gets_on": [RACK, "-DK=2", UNICAST, "-DLOSSES=1"],
}
LONG = {
    "star_five_seqs": [STAR, "-DK=5"],
    "star_two_slots": [STAR, "-DP=2", "-DK=5", "-DHEADER_SEQS=1"],
    "star_two_epochs_and_headers": [STAR, "-DK=3", "-DEPOCHS=2", "-DHEADER_SEQS=1"],
    "combined_four_seqs": [COMBINED, "-DK=4"],
    "combined_two_epochs": [COMBINED, "-DK=2", "-DEPOCHS=2", "-DHEADER_SEQS=0"],
    "rack_four_seqs": [RACK, "-DK=4", UNICAST],
    "rack_multicast": [RACK, "-DK=4"],
    "rack_two_epochs": [RACK, "-DK=2", "-DEPOCHS=2", "-DHEADER_SEQS=0", UNICAST],
    "star_gets_on_in_three_seqs": [STAR, "-DK=3", "-DLOSSES=1", "-DDOUBLES=1", "-DHEADER_SEQS=1"],
    "star_gets_on_after_more": [STAR, "-DK=3", "-DLOSSES=2", "-DDOUBLES=1", "-DEARLY=1", "-DHEADER_SEQS=1"],
    "rack_gets_on_after_more": [RACK, "-DK=3", "-DLOSSES=2", "-DDOUBLES=1", "-DHEADER_SEQS=1"],
}

# What must not: the rule that is taken away.
MUTANTS = {
    "arrival_bitmap": [STAR, "-DK=2", "-DMUTANT_ARRIVAL"],
    "older_packets_are_stale": [STAR, "-DK=3", "-DMUTANT_STALE"],
    "proof_before_claim": [STAR, "-DK=4", "-DHASTY", "-DMUTANT_PROOF"],
    "epoch": [STAR, "-DK=2", "-DEPOCHS=2", "-DMUTANT_EPOCH"],
    "shadow_copy": [STAR, "-DK=3", "-DMUTANT_SHADOW"],
    "check_word": [STAR, "-DK=2", "-DMUTANT_CHECK"],
    "send_after_consuming": [STAR, "-DK=3", "-DMUTANT_RULE_2"],
    "inbox_only_forward": [STAR, "-DK=3", "-DMUTANT_INBOX"],
    "answer_from_the_copy": [STAR, "-DK=2", "-DLOSSES=1", "-DMUTANT_NO_ANSWER"],
    "forward_again": [RACK, "-DK=2", UNICAST, "-DLOSSES=1", "-DMUTANT_FORWARD"],
    "retries_are_full_length": [STAR, "-DK=2", "-DLOSSES=1", "-DMUTANT_SHORT_RETRY"],
}


def run(name, defines, work):
    """The number of errors, states, seconds of the search; raises when the model could not be searched whole."""
    here = work / name
    here.mkdir(parents=True, exist_ok=True)
    model = pathlib.Path(__file__).with_name("slots.pml")
    subprocess.run(["spin", "-a", *defines, str(model)], cwd=here, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["gcc", "-O1", "-w", "-DSAFETY", "-DNOFAIR", "-o", "pan", "pan.c"], cwd=here, check=True)
    begin = time.monotonic()
    out = subprocess.run(["./pan", "-m1000000"], cwd=here, capture_output=True, text=True).stdout
    seconds = time.monotonic() - begin
    errors = re.search(r"errors: (\d+)", out)
    states = re.search(r"(\d+) states, stored", out)
    if not errors or (errors[1] == "0" and ("Search not completed" in out or "max search depth too small" in out)):
        raise RuntimeError(f"{name}: the search did not end: {out[-500:]}")
    return int(errors[1]), int(states[1]), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="the larger sizes too")
    parser.add_argument("--work", type=pathlib.Path, help="where to build (default: a temporary folder)")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    table = {name: (defines, False) for name, defines in (HOLDS | (LONG if options.long else {})).items()}
    table |= {name: (defines, True) for name, defines in MUTANTS.items()}
    unknown = set(options.names) - set(table)
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}; there are {', '.join(table)}")
    passed = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or pathlib.Path(scratch)
        for name, (defines, is_mutant) in table.items():
            if options.names and name not in options.names:
                continue
            errors, states, seconds = run(name, defines, work)
            is_right = (errors > 0) == is_mutant
            what = ("caught" if errors else "SURVIVES") if is_mutant else ("holds" if not errors else "BROKEN")
            print(f"{'mutant' if is_mutant else 'model'} {name}: {what}, {states} states, {seconds:.1f} s ({' '.join(defines)})", flush=True)
            passed, failed = passed + is_right, failed + (not is_right)
    print(f"model: {passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
