# SPDX-License-Identifier: Apache-2.0
"""Kinds of machines that scenarios run in. The scenarios of a kind share a cluster, which no others use."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Kind:
    box: str = ""  # box/build's option, and what its folder ends with
    aggregator_box: str = ""  # of the aggregators, where they have another: arm64 machines
    topology: str = ""  # a file beside run, where the usual one, or that of the command line, does not do
    memory_mb: int = 512
    packages: tuple = ()  # of mlnet, beside those that all have
    targets: tuple = ()  # what these are built from
    only_qemu: bool = False  # the Vagrantfile has no such machines


PLAIN = "plain"
KINDS = {
    PLAIN: Kind(),
    "racks": Kind(topology="topology-racks.yaml"),
    "newer": Kind(box="newer", only_qemu=True),
    "torch": Kind(box="torch", memory_mb=1536, packages=("python3-mlnet",), targets=("mlnet_torch",)),
    "arm64": Kind(aggregator_box="arm64", only_qemu=True),
}
