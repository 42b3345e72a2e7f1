#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts test cases in a CTest JUnit file: those that GoogleTest, unittest or a line "x: N passed, N failed" name, else the program."""
import re
import sys
import xml.etree.ElementTree as ElementTree


def count(program):
    output = program.findtext("system-out") or ""
    ok = program.get("status") == "run"
    passed = [int(n) for n in re.findall(r"^\[  PASSED  \] (\d+) tests?", output, re.M)]
    failed = [int(n) for n in re.findall(r"^\s*(\d+) FAILED TESTS?$", output, re.M)]
    unittest_runs = [int(n) for n in re.findall(r"^Ran (\d+) tests? in", output, re.M)]
    if passed or failed:
        return sum(passed), max(sum(failed), 0 if ok else 1)
    if unittest_runs:
        bad = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", output))
        return sum(unittest_runs) - bad, max(bad, 0 if ok else 1)
    own = re.findall(r"^\w+: (\d+) passed, (\d+) failed$", output, re.M)
    if own:
        bad = sum(int(n) for _, n in own)
        return sum(int(n) for n, _ in own), max(bad, 0 if ok else 1)
    return (1, 0) if ok else (0, 1)


results = [count(case) for case in ElementTree.parse(sys.argv[1]).getroot().iter("testcase")]
print(sum(p for p, _ in results), sum(f for _, f in results))
