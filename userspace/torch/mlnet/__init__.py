# SPDX-License-Identifier: Apache-2.0
"""mlnet for PyTorch: gradients are summed in the Linux kernel.

    import torch.distributed as dist
    import mlnet                                  # registers the backend
    dist.init_process_group("mlnet")              # ranks meet through torch's own store
    model = torch.nn.parallel.DistributedDataParallel(model)

Every rank needs a running mlnetd on its host; $MLNET_SOCKET names its socket if it is not the usual one.
"""
import atexit
import weakref

import torch
import torch.distributed as dist

from . import _C

__all__ = ["stats", "close"]
__version__ = _C.__version__

_groups = weakref.WeakSet()


def _create(store, rank, size, timeout):
    group = _C.create(store, rank, size, timeout)
    _groups.add(group)
    return group


def _backend_of(group):
    if group is None:
        group = dist.distributed_c10d._get_default_group()
    # torch 2: a process group holds one backend per device; 1.13: it is the backend.
    return group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group


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


@atexit.register
def _leave_all():
    # The others must see a departure, not a death: this runs before the interpreter tears modules down.
    for group in list(_groups):
        _C.close(group)


if hasattr(dist.Backend, "MLNET"):
    raise ImportError("a torch.distributed backend named mlnet is registered already")
try:
    dist.Backend.register_backend("mlnet", _create, devices=["cpu"])
except TypeError:  # torch 1.13 has no devices
    dist.Backend.register_backend("mlnet", _create)
