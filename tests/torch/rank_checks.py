# SPDX-License-Identifier: Apache-2.0
"""How a rank program says what it found: named checks, each with the problems that this rank saw."""
import datetime
import json
import os
import traceback

import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Checks:
    def __init__(self):
        self.problems = {}
        self.facts = {}

    def check(self, function):
        """Decorator: runs the function at once; what it raises is a problem of this check."""
        problems = self.problems.setdefault(function.__name__, [])
        try:
            function()
        except Exception:
            problems.append(f"rank {RANK}: {traceback.format_exc()}")
        return function

    def report(self):
        print(json.dumps({"problems": self.problems, "facts": self.facts}), flush=True)


def join(timeout_s=20):
    torch.set_num_threads(1)
    import mlnet  # registers the backend
    dist.init_process_group("mlnet", timeout=datetime.timedelta(seconds=timeout_s))
    return mlnet


def error_of(call):
    """The text of the RuntimeError that `call` must raise."""
    try:
        call()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("no error was raised")
