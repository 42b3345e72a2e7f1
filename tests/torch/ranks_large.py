# SPDX-License-Identifier: Apache-2.0
"""Rank program: tensors of 2^31 + 77 elements, in place. Inputs and expected values are made piece by piece, since
another whole tensor per rank would not fit."""
import os
import time

import numpy
import torch
import torch.distributed as dist

from rank_checks import RANK, SIZE, Checks, join

ELEMENTS = 2 ** 31 + 77
PIECE = 2 ** 24  # elements
SEED = int(os.environ.get("MLNET_SEED", "1"))

mlnet = join(timeout_s=400)
checks = Checks()
assert SIZE == 2, "float16_sum is of two ranks"
checks.facts.update(seed=SEED, seconds={})


def piece(rank, index, salt):
    """Elements [index * PIECE, ...) of a rank's input, as random bytes."""
    count = min(PIECE, ELEMENTS - index * PIECE)
    random = numpy.random.Generator(numpy.random.SFC64([SEED, salt, rank, index]))
    return numpy.frombuffer(random.bytes(count), numpy.uint8)


def pieces():
    """(index, slice) of all pieces."""
    for index in range(-(-ELEMENTS // PIECE)):
        yield index, slice(index * PIECE, min((index + 1) * PIECE, ELEMENTS))


def input_of(rank, dtype, salt, of_bytes):
    tensor = torch.empty(ELEMENTS, dtype=dtype)
    for index, part in pieces():
        tensor.numpy()[part] = of_bytes(piece(rank, index, salt))
    return tensor


def expect(tensor, wanted_piece):
    """Compares all elements; `wanted_piece(index)` is what the elements of a piece must be."""
    found = tensor.numpy()
    for place in (0, ELEMENTS // 2, 2 ** 31 - 1, 2 ** 31, 2 ** 31 + 1, ELEMENTS - 1):  # the likeliest to go wrong
        wanted = wanted_piece(place // PIECE)[place % PIECE]
        assert found[place] == wanted, f"seed {SEED}: element {place} is {found[place]}, not {wanted}"
    end = 0
    for index, part in pieces():
        wanted = wanted_piece(index)
        end += len(wanted)
        if found[part].tobytes() != wanted.tobytes():
            wrong = numpy.flatnonzero(found[part] != wanted)
            first = wrong[0] if len(wrong) else "in a sign of zero"
            raise AssertionError(f"seed {SEED}: from {part.start} on {len(wrong)} elements differ, first {first}")
    assert end == tensor.numel() == ELEMENTS, (end, tensor.numel())


def timed(name, call):
    dist.barrier()
    begin = time.perf_counter()
    call()
    checks.facts["seconds"][name] = time.perf_counter() - begin


# float16 holds the integers from -64 to 63 and all sums of two of them exactly. Tables, since numpy is slow in float16.
OF_BYTE = ((numpy.arange(256) >> 1) - 64).astype(numpy.float16)
OF_SUM = (numpy.arange(256) - 2 * 64).astype(numpy.float16)


def float16_sum(index):
    return OF_SUM[(piece(0, index, 3) >> 1) + (piece(1, index, 3) >> 1)]


@checks.check
def all_reduce_max_of_uint8_is_exact_beyond_31_bits():
    before = mlnet.stats()
    tensor = input_of(RANK, torch.uint8, 1, lambda raw: raw)
    address = tensor.data_ptr()
    timed("all_reduce uint8 MAX", lambda: dist.all_reduce(tensor, op=dist.ReduceOp.MAX))
    assert tensor.data_ptr() == address
    expect(tensor, lambda index: numpy.maximum.reduce([piece(rank, index, 1) for rank in range(SIZE)]))
    after = mlnet.stats()
    assert after["delegated_calls"] == 0 and after["summed_in_kernel"] > before["summed_in_kernel"], after


@checks.check
def broadcast_of_uint8_copies_every_byte_beyond_31_bits():
    root = SIZE - 1
    zeros = lambda raw: numpy.zeros_like(raw)
    tensor = input_of(RANK, torch.uint8, 2, (lambda raw: raw) if RANK == root else zeros)
    timed("broadcast uint8", lambda: dist.broadcast(tensor, src=root))
    expect(tensor, lambda index: piece(root, index, 2))


@checks.check
def all_reduce_sum_of_float16_is_exact_beyond_31_bits():
    tensor = input_of(RANK, torch.float16, 3, lambda raw: OF_BYTE[raw])
    timed("all_reduce float16 SUM", lambda: dist.all_reduce(tensor))
    expect(tensor, float16_sum)


dist.barrier()
checks.report()
dist.destroy_process_group()
