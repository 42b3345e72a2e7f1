# SPDX-License-Identifier: Apache-2.0
"""Partition and credit of a schedule, found while the training goes on (userspace/schedule/tuner.h does the thinking)."""
import pathlib
import time

import torch
import torch.distributed as dist

from . import _C

KIB, MIB = 1 << 10, 1 << 20
LEAST, MOST = (64 * KIB, 256 * KIB), (32 * MIB, 128 * MIB)
SETTLE_STEPS, MEASURE_STEPS, TRIALS = 3, 20, 15


class Tuning:
    """Counts steps; every rank makes the same calls at the same steps."""

    def __init__(self, store, group, start, where):
        self._store, self._group = store, group
        self._start = tuple(min(max(size, least), most) for size, least, most in zip(start, LEAST, MOST))
        self._path = None if where is True else pathlib.Path(where)
        self._tuner, self._workload, self._last_ns, self._is_saved = None, "", None, False

    @property
    def trials(self):
        return self._tuner.trials if self._tuner is not None else []

    @property
    def is_settled(self):
        return self._tuner is not None and self._tuner.is_settled

    def next_step(self, layout):
        """At the first bucket of each step. layout: the bytes of all buckets, once two steps had the same; it returns the sizes that
        hold from now on, or None."""
        now_ns = time.monotonic_ns()
        took_ns, self._last_ns = (None if self._last_ns is None else now_ns - self._last_ns), now_ns
        if self._tuner is None:
            if layout is None:
                return None
            self._begin(layout)
        elif self._tuner.end_step(took_ns):
            cost = torch.tensor([self._tuner.cost_ns], dtype=torch.int64)
            dist.all_reduce(cost, op=dist.ReduceOp.MAX, group=self._group)  # a step is as long as that of its slowest rank
            self._tuner.agree(int(cost.item()))
        if self._tuner.is_settled and not self._is_saved:
            self._save()
        return self._tuner.sizes

    def _begin(self, layout):
        self._workload = f"{dist.get_world_size(self._group)} ranks, buckets {layout}"
        if dist.get_rank(self._group) == 0:
            is_there = self._path is not None and self._path.exists()
            self._store.set("tuning", self._path.read_text(encoding="utf-8") if is_there else "{}")
        state = self._store.get("tuning").decode()
        self._tuner = _C.Tuner(SETTLE_STEPS, MEASURE_STEPS, TRIALS, LEAST, MOST, self._start, state, self._workload)

    def _save(self):
        self._is_saved = True
        if self._path is not None and dist.get_rank(self._group) == 0:
            self._path.write_text(self._tuner.state(self._workload), encoding="utf-8")
