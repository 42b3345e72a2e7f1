# SPDX-License-Identifier: Apache-2.0
"""What both rank programs need: values that differ per rank, the device, and what it wrote down."""
import numpy
import torch

import mlnet_test_device

DEVICE = torch.device("privateuseone:0")
CHUNK = 4 << 20     # kChunkBytes
BUFFERS = 4         # kRingBuffers


def values(rank, dtype, count):
    """Wide blocks, large and small, and for floats a few that are not finite."""
    random = numpy.random.RandomState(7 + rank)
    if not dtype.is_floating_point:
        return torch.from_numpy(random.randint(-2 ** 62, 2 ** 62, count)).to(dtype)
    numbers = random.standard_normal(count).astype("float32")
    numbers[:: 32 * 100] *= 1e12
    tensor = torch.from_numpy(numbers).to(dtype)
    if count > 1000:
        tensor[count // 2], tensor[-1] = float("inf"), float("nan") if rank == 1 else 1.0
    return tensor


def assert_same_bits(device_tensor, cpu_tensor):
    assert device_tensor.device == DEVICE and device_tensor.dtype == cpu_tensor.dtype
    found, want = device_tensor.cpu().contiguous(), cpu_tensor.contiguous()
    assert found.shape == want.shape, (found.shape, want.shape)
    if want.numel() == 0:  # numpy gives it strides that have no bytes
        return
    different = (found.view(torch.uint8) != want.view(torch.uint8)).nonzero()
    assert len(different) == 0, f"{len(different)} bytes differ"


def copies(what):
    """[(offset, bytes)] of the copies in that direction, in order."""
    return [(number, size) for kind, size, number, _ in mlnet_test_device.journal() if kind == what]


def journal_of(call):
    mlnet_test_device.clear()
    call()
    return mlnet_test_device.journal()
