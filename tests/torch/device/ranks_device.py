# SPDX-License-Identifier: Apache-2.0
"""Rank program: every collective on tensors of another device gives the bits that it gives on the CPU."""
import ctypes
import errno
import os

import torch
import torch.distributed as dist

from device_checks import CHUNK, DEVICE, assert_same_bits, copies, journal_of, values
from rank_checks import RANK, SIZE, Checks, error_of, join

mlnet = join()
checks = Checks()

OP = dist.ReduceOp
DTYPES = (torch.float32, torch.bfloat16, torch.int64)
SMALL = 20_001


def large(dtype):
    """One and a half chunks, and neither a whole block nor an even number."""
    return CHUNK * 3 // 2 // torch.empty((), dtype=dtype).element_size() + 33


def reduced_alike(dtype, op, count):
    on_cpu = values(RANK, dtype, count)
    on_device = on_cpu.to(DEVICE)
    dist.all_reduce(on_cpu, op=op)
    dist.all_reduce(on_device, op=op)
    assert_same_bits(on_device, on_cpu)


@checks.check
def the_memory_of_the_device_is_out_of_reach_for_whoever_forgets_to_copy():
    tensor = torch.ones(1000).to(DEVICE)
    readable, writable = os.pipe()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.write(writable, ctypes.c_void_p(tensor.data_ptr()), 4) == -1 and ctypes.get_errno() == errno.EFAULT
    os.close(readable)
    os.close(writable)
    assert "PrivateUse1" in error_of(lambda: tensor + 1)


@checks.check
def all_reduce_of_a_small_tensor_has_the_bits_of_the_cpu():
    for dtype in DTYPES:
        for op in (OP.SUM, OP.MAX, OP.AVG):
            for count in (0, 1, 353, SMALL):
                reduced_alike(dtype, op, count)


@checks.check
def all_reduce_of_a_large_tensor_has_the_bits_of_the_cpu():
    for dtype in DTYPES:
        for op in (OP.SUM, OP.MAX, OP.AVG):
            reduced_alike(dtype, op, large(dtype))


@checks.check
def a_rest_of_few_elements_is_no_small_tensor_of_its_own():
    reduced_alike(torch.float32, OP.SUM, 2 * CHUNK // 4 + 1)


@checks.check
def all_reduce_with_a_wire_type_of_a_large_tensor_has_the_bits_and_the_residual_of_the_cpu():
    on_cpu = values(RANK, torch.float32, large(torch.float32)).nan_to_num(0, 1, 1)
    on_device = on_cpu.to(DEVICE)
    residuals = torch.zeros(2, on_cpu.numel())
    mlnet.all_reduce(on_cpu, wire="int16", residual=residuals[0])
    mlnet.all_reduce(on_device, wire="int16", residual=residuals[1])
    assert_same_bits(on_device, on_cpu)
    assert torch.equal(residuals[0], residuals[1]) and residuals[0].abs().max() > 0


@checks.check
def a_small_tensor_goes_through_the_host_in_one_piece():
    tensor = values(RANK, torch.float32, SMALL).to(DEVICE)
    journal_of(lambda: dist.all_reduce(tensor))
    assert copies("to_host") == copies("to_device") == [(0, 4 * SMALL)]


@checks.check
def tensors_that_are_not_contiguous_are_reduced_in_place():
    for rows in (30, 2000):  # the larger one's view goes in chunks
        whole = values(RANK, torch.float32, rows * 1500).nan_to_num(0, 1, 1).view(rows, 1500)
        on_device = whole.to(DEVICE)
        view, want = on_device.t()[::2], whole.t()[::2]
        address, strides = view.data_ptr(), view.stride()
        dist.all_reduce(view)
        dist.all_reduce(want)
        assert (view.data_ptr(), view.stride()) == (address, strides)
        assert_same_bits(on_device, whole)  # what is outside of the view as well


@checks.check
def broadcast_moves_the_bits_of_the_root_and_copies_on_each_side_once():
    for dtype in (torch.float32, torch.bool, torch.complex64):
        for count in (SMALL, large(dtype)):
            of_rank = [values(rank, torch.int64, count).to(dtype) for rank in (1, RANK)]
            tensor = of_rank[1].to(DEVICE)
            journal_of(lambda: dist.broadcast(tensor, src=1))
            unwanted = "to_device" if RANK == 1 else "to_host"
            assert count == SMALL or copies(unwanted) == [], copies(unwanted)
            assert tensor.cpu().numpy().tobytes() == of_rank[0].numpy().tobytes()


@checks.check
def the_gathers_and_scatters_stage_their_tensors():
    for dtype in DTYPES:
        of_rank = [values(rank, dtype, SMALL) for rank in range(SIZE)]
        mine = of_rank[RANK].to(DEVICE)
        gathered = [torch.empty_like(mine) for _ in range(SIZE)]
        dist.all_gather(gathered, mine)
        flat = torch.empty(SIZE * SMALL, dtype=dtype, device=DEVICE)
        dist.all_gather_into_tensor(flat, mine)
        assert_same_bits(flat, torch.cat(of_rank))
        at_root = [torch.empty_like(mine) for _ in range(SIZE)] if RANK == 2 else None
        dist.gather(mine, at_root, dst=2)
        for found in (gathered, at_root or gathered):
            for tensor, want in zip(found, of_rank):
                assert_same_bits(tensor, want)
        received = torch.empty_like(mine)
        dist.scatter(received, [part.to(DEVICE) for part in of_rank] if RANK == 0 else None, src=0)
        assert_same_bits(received, of_rank[RANK])


@checks.check
def reduce_and_reduce_scatter_have_the_bits_of_the_cpu():
    for dtype in DTYPES:
        on_cpu = values(RANK, dtype, SIZE * SMALL)
        on_device = on_cpu.to(DEVICE)
        results = []
        for whole in (on_cpu, on_device):
            part = torch.empty(SMALL, dtype=dtype, device=whole.device)
            dist.reduce_scatter(part, [whole[SMALL * rank:SMALL * (rank + 1)] for rank in range(SIZE)])
            of_tensor = torch.empty(SMALL, dtype=dtype, device=whole.device)
            dist.reduce_scatter_tensor(of_tensor, whole, op=OP.MAX)
            total = whole.clone()
            dist.reduce(total, dst=3)
            results.append((part, of_tensor, total))
        for want, found in zip(*results):
            assert_same_bits(found, want)


@checks.check
def many_outstanding_calls_of_all_kinds_keep_their_order_and_results():
    works, pairs = [], []
    for number in range(24):
        dtype = DTYPES[number % 3]
        count = large(dtype) if number % 4 == 1 else 100 + 977 * number
        on_cpu = values(RANK + number, dtype, count)
        on_device = on_cpu.to(DEVICE)
        # A call of the CPU comes while the chunks of the last one are still being issued.
        for tensor in (on_device, on_cpu):
            if number % 6 == 5:
                works.append(dist.broadcast(tensor, src=number % SIZE, async_op=True))
            else:
                works.append(dist.all_reduce(tensor, async_op=True))
        pairs.append((on_device, on_cpu))
    works.append(dist.barrier(async_op=True))
    for work in reversed(works):
        work.wait()
    for on_device, on_cpu in pairs:
        assert_same_bits(on_device, on_cpu)


@checks.check
def none_of_this_went_to_gloo():
    assert mlnet.stats()["delegated_calls"] == 0, mlnet.stats()["delegated"]


dist.barrier()
checks.report()
dist.destroy_process_group()
