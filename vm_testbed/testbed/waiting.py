# SPDX-License-Identifier: Apache-2.0
"""Waiting for what happens in machines of unknown speed."""
import time

from .errors import TestbedError

LOOK_S = 0.5


def wait_until(what, condition, limit_s):
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TestbedError(f"not in {limit_s} s: {what}")
        time.sleep(LOOK_S)
