# SPDX-License-Identifier: Apache-2.0
"""Rank program: what users of collective libraries have reported, replayed. T.. are the ids of the reports."""
import datetime

import numpy
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join

from rank_checks import RANK, SIZE, Checks, error_of, join

mlnet = join()
checks = Checks()

RANKS = range(SIZE)
OP = dist.ReduceOp
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# Half a unit in the last place, twice: of the sum, and of the way through float32.
ROUNDING = {torch.float32: 2.0 ** -20, torch.float64: 2.0 ** -48, torch.float16: 2.0 ** -10, torch.bfloat16: 2.0 ** -7}


def input_of(rank, dtype, count=5000):
    random = numpy.random.RandomState(100 + rank)
    if dtype.is_floating_point:
        return torch.from_numpy(random.standard_normal(count)).to(dtype)
    if dtype == torch.bool:
        return torch.from_numpy(random.randint(0, 2, count)).bool()
    info = torch.iinfo(dtype)
    return torch.from_numpy(random.randint(info.min, info.max, count, dtype="int64")).to(dtype)


def reduced(dtype, op):
    """By numpy, in the type itself for integers (they wrap), in float64 for floats."""
    inputs = [input_of(rank, dtype) for rank in RANKS]
    values = numpy.stack([x.double().numpy() if dtype.is_floating_point else x.numpy() for x in inputs])
    folds = {OP.SUM: numpy.add, OP.MIN: numpy.minimum, OP.MAX: numpy.maximum, OP.BAND: numpy.bitwise_and,
             OP.BOR: numpy.bitwise_or, OP.BXOR: numpy.bitwise_xor}
    with numpy.errstate(over="ignore"):
        return folds[op].reduce(values, axis=0, dtype=values.dtype)


def same_bits_everywhere(tensor):
    others = [torch.empty_like(tensor) for _ in RANKS]
    dist.all_gather(others, tensor)
    return all(torch.equal(other.view(torch.uint8), tensor.view(torch.uint8)) for other in others)


@checks.check
def T04_a_shape_that_differs_on_one_rank_is_an_error_on_all_not_a_hang():
    group = dist.new_group(timeout=datetime.timedelta(seconds=10))
    text = error_of(lambda: dist.all_reduce(torch.ones(1013 if RANK == 2 else 1012), group=group))
    assert "E_MISMATCH" in text and "1012" in text and "1013" in text, text


@checks.check
def T04_a_dtype_that_differs_on_one_rank_is_an_error_on_all():
    group = dist.new_group(timeout=datetime.timedelta(seconds=10))
    tensor = torch.ones(5000, dtype=torch.int32 if RANK == 1 else torch.float32)
    text = error_of(lambda: dist.all_reduce(tensor, group=group))
    assert "E_MISMATCH" in text and "int32" in text and "float32" in text, text


@checks.check
def T06_different_roots_show_the_calls_of_both_sides():
    group = dist.new_group(timeout=datetime.timedelta(seconds=10))
    text = error_of(lambda: dist.broadcast(torch.ones(100), src=RANK % 2, group=group))
    assert "E_MISMATCH" in text and "root=0" in text and "root=1" in text, text


@checks.check
def T07_non_contiguous_tensors_are_not_silently_wrong():
    base = torch.arange(40.0 * 60).view(40, 60) * (RANK + 1)
    for view in (base.t(), base[::2, ::3], base[:, 1:2], base.unsqueeze(0).expand(1, 40, 60)):
        tensor = base.clone().as_strided(view.size(), view.stride(), view.storage_offset())
        address = tensor.data_ptr()
        dist.all_reduce(tensor)
        factor = SIZE * (SIZE + 1) / 2 / (RANK + 1)
        torch.testing.assert_close(tensor, view * factor, rtol=1e-5, atol=1e-3)
        assert tensor.data_ptr() == address and tensor.stride() == view.stride()


@checks.check
def T08_zero_sizes_and_scalars_do_not_crash_and_keep_the_order():
    for shape in ((0,), (1, 0, 2), (), (1,), (353,)):
        for dtype in (torch.float32, torch.int64):
            tensor = torch.ones(shape, dtype=dtype)
            dist.all_reduce(tensor)
            assert tensor.shape == torch.Size(shape) and (tensor == SIZE).all(), (shape, dtype)
            dist.broadcast(tensor, src=1)


@checks.check
def T10_every_type_and_operation_is_right_or_refused_by_name():
    for dtype in INTEGERS + FLOATS:
        for op in (OP.SUM, OP.MIN, OP.MAX) + (() if dtype.is_floating_point else (OP.BAND, OP.BOR, OP.BXOR)):
            tensor = input_of(RANK, dtype)
            dist.all_reduce(tensor, op=op)
            expected = reduced(dtype, op)
            if dtype.is_floating_point and op == OP.SUM:
                numpy.testing.assert_allclose(tensor.double().numpy(), expected, rtol=ROUNDING[dtype], atol=1e-4 *
                                              ROUNDING[dtype] * 2 ** 12, err_msg=str((dtype, op)))
            else:
                numpy.testing.assert_array_equal(tensor.double().numpy(), expected.astype("float64"), str((dtype, op)))
    assert mlnet.stats()["delegated_calls"] == 0, mlnet.stats()["delegated"]


@checks.check
def T10_bool_means_any_and_all():
    inputs = torch.stack([input_of(rank, torch.bool) for rank in RANKS])
    for op, expected in ((OP.SUM, inputs.any(0)), (OP.MAX, inputs.any(0)), (OP.BOR, inputs.any(0)),
                         (OP.MIN, inputs.all(0)), (OP.PRODUCT, inputs.all(0)), (OP.BAND, inputs.all(0)),
                         (OP.BXOR, inputs.sum(0) % 2 == 1)):
        tensor = input_of(RANK, torch.bool)
        dist.all_reduce(tensor, op=op)
        assert torch.equal(tensor, expected), op


@checks.check
def T12_fp16_overflows_only_where_float32_says_so():
    fits = torch.full((20_000,), 16_000.0, dtype=torch.float16)
    dist.all_reduce(fits)
    assert (fits == 64_000).all(), fits
    too_large = torch.full((20_000,), 16_400.0, dtype=torch.float16)
    dist.all_reduce(too_large)
    assert torch.isposinf(too_large).all()


@checks.check
def T12_a_loss_scaler_sees_the_same_infinities_on_all_ranks_and_only_there():
    for dtype in FLOATS:
        for wire in ("int32",) if dtype == torch.float64 else ("int32", "int16", "int8"):
            tensor = torch.full((30_000,), 0.5, dtype=dtype)
            if RANK == 1:
                tensor[7], tensor[8], tensor[29_999] = float("inf"), float("-inf"), float("nan")
            if RANK == 2:
                tensor[8] = float("inf")
            mlnet.all_reduce(tensor, wire=wire)
            assert tensor[7] == float("inf") and tensor[8].isnan() and tensor[29_999].isnan(), (dtype, wire)
            finite = torch.ones(30_000, dtype=torch.bool)
            finite[[7, 8, 29_999]] = False
            assert (tensor[finite] == 2).all(), (dtype, wire)


@checks.check
def T15_overlapping_groups_at_the_same_time_do_not_disturb_each_other():
    members = [[0, 1], [2, 3], [1, 2, 3], [0, 1, 2, 3]]
    groups = [dist.new_group(ranks) for ranks in members]
    mine = [(number, ranks, group) for number, (ranks, group) in enumerate(zip(members, groups)) if RANK in ranks]
    tensors = [torch.full((20_000,), 1000 * number + RANK) for number, _, _ in mine]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor, (_, _, group) in zip(tensors, mine)]
    for work in works:
        work.wait()
    for tensor, (number, ranks, _) in zip(tensors, mine):
        assert (tensor == sum(1000 * number + rank for rank in ranks)).all(), number
    for _, _, group in mine:
        mlnet.close(group)


@checks.check
def T15_groups_are_closed_without_leaks():
    for round_ in range(12):  # each would hold slots, cells and maps of all hosts
        group = dist.new_group()
        tensor = torch.full((500,), float(round_))
        dist.all_reduce(tensor, group=group)
        assert (tensor == SIZE * round_).all()
        dist.destroy_process_group(group)


@checks.check
def T20_uneven_inputs_end_with_join():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3000, 2))
    with Join([model]):
        for _ in range(2 + RANK):
            model(torch.ones(1, 3000)).sum().backward()


@checks.check
def T21_the_map_of_used_parameters_is_exact():
    used = torch.zeros(5000, dtype=torch.int32)
    used[RANK::SIZE + 1] = 1
    dist.all_reduce(used)
    expected = numpy.zeros(5000, dtype="int32")
    for rank in RANKS:
        expected[rank::SIZE + 1] += 1
    numpy.testing.assert_array_equal(used.numpy(), expected)


@checks.check
def T23_the_same_sum_has_the_same_bits_on_every_rank_and_in_every_run():
    results = []
    for _ in range(3):
        group = dist.new_group()
        tensor = input_of(RANK, torch.float32, 100_003)
        dist.all_reduce(tensor, group=group)
        assert same_bits_everywhere(tensor)
        results.append(tensor)
        mlnet.close(group)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@checks.check
def T31_metrics_and_batch_norm_come_back_as_float_adds_in_rank_order():
    for count in (1, 7, 16384 // 4 // SIZE):
        tensor = input_of(RANK, torch.float32, count) * 10.0 ** RANK
        dist.all_reduce(tensor)
        expected = numpy.zeros(count, dtype="float32")
        for rank in RANKS:
            scaled = (input_of(rank, torch.float32, count) * 10.0 ** rank).numpy()
            expected = scaled if rank == 0 else expected + scaled
        numpy.testing.assert_array_equal(tensor.numpy(), expected)


@checks.check
def T31_a_small_element_beside_large_ones_keeps_its_value():
    tensor = torch.full((50_000,), 1e20)
    tensor[::1000] = 1e-20 * (RANK + 1)
    dist.all_reduce(tensor)
    torch.testing.assert_close(tensor[::1000], torch.full((50,), 1e-20 * SIZE * (SIZE + 1) / 2), rtol=2 ** -11, atol=0)
    assert mlnet.stats()["wide_blocks"] > 0


dist.barrier()
checks.report()
dist.destroy_process_group()
