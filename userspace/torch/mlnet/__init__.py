# SPDX-License-Identifier: Apache-2.0
"""mlnet for PyTorch: gradients are summed in the Linux kernel.

    import torch.distributed as dist
    import mlnet                                  # registers the backend
    dist.init_process_group("mlnet")              # ranks meet through torch's own store
    model = torch.nn.parallel.DistributedDataParallel(model)

Every rank needs a running mlnetd on its host; $MLNET_SOCKET names its socket if it is not the usual one.
"""
import atexit

import torch
import torch.distributed as dist

from . import _C
from .groups import Options, groups as _groups
from .scheduling import Schedule, close_all as _close_schedules, schedule

__all__ = ["Options", "all_reduce", "stats", "close", "schedule", "Schedule"]
__version__ = _C.__version__


def _create(given, options):
    if options is None:
        options = Options()
    if not isinstance(options, Options):
        raise TypeError(f"pg_options of backend mlnet is an mlnet.Options, not {type(options).__name__}")
    group = _C.create(given.store, given.group_rank, given.group_size, given.timeout, options.mac)
    _groups[group] = (given.timeout, options)
    return group


def _backend_of(group):
    if group is None:
        group = dist.distributed_c10d._get_default_group()
    # torch 2: a process group holds one backend per device; 1.13: it is the backend.
    return group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group


def all_reduce(tensor, group=None, wire="int32", residual=None, stochastic=False, async_op=False):
    """Sums a float tensor over all ranks in place, with the wire type of the caller's choice.

    wire: "int32", "int16" or "int8": 4, 2 or 1 bytes an element. The error is bounded relative to the largest element of
    a block (README), which is what gradients need; torch.distributed.all_reduce keeps each element's own accuracy too. residual: a contiguous float32 tensor of the same size that receives what
    rounding took from this rank's input; add it to the next input (error feedback). stochastic: round up or down at
    random, right on average. Returns None, or with async_op a Work (wait(), get_future()).
    """
    work = _C.all_reduce(_backend_of(group), tensor, wire, residual, stochastic)
    if async_op:
        return work
    work.wait()
    return None


def stats(group=None):
    """Counters of this rank in `group` (default: the whole world) since it joined, as a dict.

    packets_sent, retransmits, summed_in_kernel, summed_in_user_space and so on are libmlnet's CommStats;
    "delegated" counts the calls handed to the inner Gloo group as {"all_reduce int64 SUM": calls}, and
    "delegated_calls" is their sum.
    """
    return _C.stats(_backend_of(group))


def close(group=None):
    """Leaves the job in an orderly way; later collectives of `group` raise. Done at exit by itself."""
    _C.close(_backend_of(group))


_monitored_barrier = dist.distributed_c10d.monitored_barrier


def _monitored_barrier_of_any(group=dist.GroupMember.WORLD, timeout=None, wait_all_ranks=False):
    """torch.distributed.monitored_barrier, which refuses every backend but Gloo by its name; mlnet has one too."""
    if dist.distributed_c10d._rank_not_in_group(group) or dist.get_backend(group) != "mlnet":
        return _monitored_barrier(group, timeout, wait_all_ranks)
    backend = _backend_of(None if group is dist.GroupMember.WORLD else group)
    timeout = dist.distributed_c10d.default_pg_timeout if timeout is None else timeout
    return _C.monitored_barrier(backend, timeout, wait_all_ranks)


dist.monitored_barrier = dist.distributed_c10d.monitored_barrier = _monitored_barrier_of_any


@atexit.register
def _leave_all():
    # The others must see a departure, not a death: this runs before the interpreter tears modules down.
    _close_schedules()
    for group in list(_groups):
        _C.close(group)


if hasattr(dist.Backend, "MLNET"):
    raise ImportError("a torch.distributed backend named mlnet is registered already")
try:
    dist.Backend.register_backend("mlnet", _create, extended_api=True, devices=["cpu"])
except TypeError:  # torch 1.13 has no devices
    dist.Backend.register_backend("mlnet", _create, extended_api=True)
