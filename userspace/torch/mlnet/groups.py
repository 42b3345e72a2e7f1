# SPDX-License-Identifier: Apache-2.0
"""The process groups of backend mlnet that this process has made."""
import dataclasses
import weakref

import torch.distributed as dist


@dataclasses.dataclass
class Options:
    """What `pg_options` of init_process_group and new_group may be; the same on all ranks.

    mac   packets carry a tag made with a key of the job, which the kernel checks at every hop: nobody else in the network
          can add to a sum. It takes some time a packet (README). Where the job cannot have it, joining is an error
    """
    mac: bool = False


groups = weakref.WeakKeyDictionary()  # group -> its timeout and options


def timeout_of(group):
    """What init_process_group or new_group was given."""
    return groups.get(group, (dist.distributed_c10d.default_pg_timeout, None))[0]


def options_of(group):
    return groups.get(group, (None, Options()))[1]
