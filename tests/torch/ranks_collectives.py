# SPDX-License-Identifier: Apache-2.0
"""Rank program: every collective against numpy, with values that differ per rank and per element."""
import datetime
import os

import numpy
import torch
import torch.distributed as dist

from rank_checks import RANK, SIZE, Checks, error_of, join

mlnet = join()
checks = Checks()

# One element, odd ones, around a block (32), around a packet (352), several pools of packets.
SIZES = [0, 1, 3, 31, 32, 33, 351, 352, 353, 1000, 100_003]
LANE_BITS = 32


def values(rank, count, dtype, salt=0):
    random = numpy.random.RandomState(1000 * salt + rank)
    if dtype.kind == "f":
        return (random.standard_normal(count) * 10.0 ** random.uniform(-3, 3, count)).astype(dtype)
    info = numpy.iinfo(dtype)
    return random.randint(info.min, info.max, count, dtype=dtype)


def per_rank(count, dtype, salt=0, ranks=range(SIZE)):
    return numpy.stack([values(rank, count, numpy.dtype(dtype), salt) for rank in ranks])


def expect_sum(got, inputs):
    """int: equal, wrapping. float32: within the documented bound of each block of 32 elements."""
    assert got.shape == inputs.shape[1:], f"shape {got.shape}, not {inputs.shape[1:]}"
    if inputs.dtype.kind != "f":
        with numpy.errstate(over="ignore"):
            numpy.testing.assert_array_equal(got, inputs.sum(axis=0, dtype=inputs.dtype))
        return
    ranks = len(inputs)
    exact = inputs.astype(numpy.float64).sum(axis=0)
    for begin in range(0, len(exact), 32):
        block = slice(begin, begin + 32)
        largest = numpy.abs(inputs[:, block].astype(numpy.float64)).max()
        bound = ranks * largest * 2.0 ** (numpy.ceil(numpy.log2(ranks)) + 1 - LANE_BITS)
        rounding = numpy.abs(exact[block]) * 2.0 ** -23
        assert (numpy.abs(got[block] - exact[block]) <= bound + rounding).all(), f"block at {begin} is off"


def expect_same_bits_everywhere(tensor):
    gathered = [torch.empty_like(tensor) for _ in range(SIZE)]
    dist.all_gather(gathered, tensor)
    for other in gathered:
        assert other.numpy().tobytes() == tensor.numpy().tobytes(), "ranks differ in bits"


@checks.check
def all_reduce_sums_float32_of_every_size_within_the_bound():
    for size in SIZES:
        inputs = per_rank(size, "float32", size)
        tensor = torch.from_numpy(inputs[RANK].copy())
        dist.all_reduce(tensor)
        expect_sum(tensor.numpy(), inputs)
        expect_same_bits_everywhere(tensor)


@checks.check
def all_reduce_sums_int32_of_every_size_exactly_and_wraps():
    for size in SIZES:
        inputs = per_rank(size, "int32", size)
        tensor = torch.from_numpy(inputs[RANK].copy())
        dist.all_reduce(tensor)
        expect_sum(tensor.numpy(), inputs)


@checks.check
def all_reduce_averages_by_dividing_the_sum():
    inputs = per_rank(777, "float32", 1)
    tensor = torch.from_numpy(inputs[RANK].copy())
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    expect_sum(tensor.numpy() * SIZE, inputs)
    whole = torch.tensor([7, -7, 2], dtype=torch.int32) * (RANK + 1)
    dist.all_reduce(whole, op=dist.ReduceOp.AVG)
    total = sum(range(1, SIZE + 1))
    assert whole.tolist() == [int(value * total / SIZE) for value in (7, -7, 2)], whole


@checks.check
def all_reduce_keeps_non_contiguous_tensors_in_place():
    inputs = per_rank(40 * 50, "float32", 2).reshape(SIZE, 40, 50)
    base = torch.from_numpy(inputs[RANK].copy())
    view = base.t()[::2]
    dist.all_reduce(view)
    expect_sum(view.flatten().numpy(), inputs.transpose(0, 2, 1)[:, ::2].reshape(SIZE, -1))
    assert torch.equal(base[:, 1::2], torch.from_numpy(inputs[RANK][:, 1::2])), "elements outside of the view changed"
    integers = torch.arange(60, dtype=torch.int32).view(6, 10)[:, 3] * 1
    column = torch.arange(60, dtype=torch.int32).view(6, 10)[:, 3]
    dist.all_reduce(column)
    assert torch.equal(column, integers * SIZE), column


@checks.check
def all_reduce_of_zero_elements_keeps_the_order():
    for shape in [(0,), (1, 0, 2), ()]:
        tensor = torch.full(shape, float(RANK + 1))
        dist.all_reduce(tensor)
        assert tensor.shape == shape
        if shape == ():
            assert tensor.item() == SIZE * (SIZE + 1) / 2, tensor


@checks.check
def all_reduce_with_several_tensors_adds_all_of_them():
    group = dist.distributed_c10d._get_default_group()
    tensors = [torch.full((5,), 1.0 + RANK), torch.full((5,), 10.0)]
    group.allreduce(tensors, dist.AllreduceOptions()).wait()
    want = sum(range(1, SIZE + 1)) + 10.0 * SIZE
    for tensor in tensors:
        assert tensor.tolist() == [want] * 5, tensor


@checks.check
def all_reduce_coalesced_reduces_each_tensor_by_itself():
    inputs = [per_rank(size, "float32", 3 + size) for size in (5, 400, 0)]
    tensors = [torch.from_numpy(each[RANK].copy()) for each in inputs]
    dist.all_reduce_coalesced(tensors)
    for tensor, each in zip(tensors, inputs):
        expect_sum(tensor.numpy(), each)


@checks.check
def many_outstanding_async_calls_complete_with_their_own_results():
    inputs = [per_rank(1 + 97 * i, "int32" if i % 2 else "float32", 50 + i) for i in range(60)]
    tensors = [torch.from_numpy(each[RANK].copy()) for each in inputs]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        assert work.wait() and work.is_completed() and work.is_success()
    for tensor, each in zip(tensors, inputs):
        expect_sum(tensor.numpy(), each)


@checks.check
def futures_run_their_callbacks_with_the_result():
    tensor = torch.full((3,), float(RANK + 1))
    group = dist.distributed_c10d._get_default_group()
    future = group.allreduce([tensor], dist.AllreduceOptions()).get_future().then(lambda f: f.value()[0] / 2)
    total = SIZE * (SIZE + 1) / 2
    assert future.wait().tolist() == [total / 2] * 3
    work = group.allreduce([tensor], dist.AllreduceOptions())
    work.wait()
    assert work.result()[0].data_ptr() == tensor.data_ptr()


@checks.check
def wait_gives_up_after_its_own_timeout_and_the_collective_goes_on():
    tensor = torch.ones(4)
    if RANK == 0:
        work = dist.all_reduce(tensor, async_op=True)
        text = error_of(lambda: work.wait(datetime.timedelta(milliseconds=50)))
        assert "all_reduce" in text and "50 ms" in text, text
        dist.distributed_c10d._get_default_store().set("go", "1")
        work.wait()
    else:
        dist.distributed_c10d._get_default_store().get("go")
        dist.all_reduce(tensor)
    assert tensor.tolist() == [SIZE] * 4


@checks.check
def broadcast_copies_the_bytes_of_any_dtype_from_any_root():
    for root in range(SIZE):
        for dtype in (torch.float32, torch.int64, torch.uint8, torch.bool, torch.bfloat16, torch.float64):
            source = (torch.arange(1001) * 37 % 251 * (root + 1)).to(dtype)
            tensor = source.clone() if RANK == root else torch.zeros_like(source)
            dist.broadcast(tensor, src=root)
            assert torch.equal(tensor, source), (root, dtype)
    strided = torch.zeros(10, 6).t() if RANK else torch.arange(60.0).view(10, 6).t()
    dist.broadcast(strided, src=0)
    assert torch.equal(strided, torch.arange(60.0).view(10, 6).t())
    dist.broadcast(torch.empty(0), src=0)


@checks.check
def all_gather_gathers_any_dtype_in_rank_order():
    for dtype in (torch.float32, torch.int64, torch.uint8, torch.complex64, torch.float16):
        mine = [((torch.arange(333) + 1000 * rank) % 241).to(dtype) for rank in range(SIZE)]
        gathered = [torch.zeros_like(mine[0]) for _ in range(SIZE)]
        dist.all_gather(gathered, mine[RANK])
        for rank in range(SIZE):
            assert torch.equal(gathered[rank], mine[rank]), (rank, dtype)
    dist.all_gather([torch.empty(0) for _ in range(SIZE)], torch.empty(0))
    objects = [None] * SIZE
    dist.all_gather_object(objects, {"rank": RANK, "text": "x" * RANK})
    assert objects == [{"rank": rank, "text": "x" * rank} for rank in range(SIZE)]


@checks.check
def all_gather_into_one_tensor_concatenates():
    output = torch.empty(SIZE * 7, dtype=torch.int64)
    dist.all_gather_into_tensor(output, torch.arange(7) + 100 * RANK)
    assert output.tolist() == [100 * rank + i for rank in range(SIZE) for i in range(7)]


@checks.check
def barrier_waits_for_the_last_rank():
    store = dist.distributed_c10d._get_default_store()
    store.add("arrived", 1)
    dist.barrier()
    assert store.add("arrived", 0) == SIZE


@checks.check
def other_dtypes_and_operations_go_to_gloo_and_are_counted():
    before = mlnet.stats()["delegated_calls"]
    for dtype, operation, fold in [("int64", dist.ReduceOp.SUM, numpy.sum), ("float32", dist.ReduceOp.MAX, numpy.max),
                                   ("float64", dist.ReduceOp.SUM, numpy.sum), ("int32", dist.ReduceOp.MIN, numpy.min),
                                   ("int64", dist.ReduceOp.SUM, numpy.sum)]:
        inputs = per_rank(66, dtype, 9).reshape(SIZE, 6, 11) // 1000
        tensor = torch.from_numpy(inputs[RANK].copy())
        dist.all_reduce(tensor.t(), op=operation)
        numpy.testing.assert_allclose(tensor.numpy(), fold(inputs, axis=0), rtol=1e-12)
    average = torch.tensor([1.0, 3.0], dtype=torch.float64) * RANK
    dist.all_reduce(average, op=dist.ReduceOp.AVG)
    assert average.tolist() == [(SIZE - 1) / 2, 3 * (SIZE - 1) / 2]
    root = torch.full((4,), float(RANK))
    dist.reduce(root, dst=1)
    assert root.tolist() == [SIZE * (SIZE - 1) / 2 if RANK == 1 else float(RANK)] * 4
    parts = [torch.full((2,), float(i)) for i in range(SIZE)] if RANK == 0 else None
    mine = torch.empty(2)
    dist.scatter(mine, parts, src=0)
    assert mine.tolist() == [RANK] * 2
    if RANK == 0:
        dist.send(torch.tensor([42.0]), dst=1)
    if RANK == 1:
        dist.recv(mine[:1], src=0)
        assert mine[0] == 42
    stats = mlnet.stats()
    assert stats["delegated"]["all_reduce int64 SUM"] == 2, stats
    assert stats["delegated_calls"] - before == 8 + (RANK < 2), stats


@checks.check
def what_neither_can_do_is_refused_by_name():
    text = error_of(lambda: dist.all_reduce(torch.ones(3, dtype=torch.bool)))
    assert "all_reduce bool SUM" in text and "mlnet sums float32 and int32" in text, text
    text = error_of(lambda: dist.all_gather([torch.empty(3)] * SIZE, torch.empty(4)))
    assert "float32[3]" in text and "float32[4]" in text, text
    os.environ["MLNET_FALLBACK"] = "none"
    text = error_of(lambda: dist.all_reduce(torch.ones(3, dtype=torch.int64)))
    del os.environ["MLNET_FALLBACK"]
    assert "all_reduce int64 SUM" in text and "MLNET_FALLBACK=none" in text, text


@checks.check
def sub_groups_are_jobs_of_their_own():
    members = [[0, 1], [2, 3], [1, 2, 3]]
    groups = [dist.new_group(ranks) for ranks in members]
    jobs = set()
    for ranks, group in zip(members, groups):
        if RANK not in ranks:
            continue
        for round_ in range(3):
            inputs = per_rank(500, "int32", 200 + round_, ranks)
            tensor = torch.from_numpy(inputs[ranks.index(RANK)].copy())
            dist.all_reduce(tensor, group=group)
            expect_sum(tensor.numpy(), inputs)
        jobs.add(mlnet.stats(group)["job"])
    assert mlnet.stats()["job"] not in jobs and len(jobs) == sum(RANK in ranks for ranks in members)


@checks.check
def a_non_finite_input_raises_on_every_rank():
    for number, bad in enumerate((float("nan"), float("inf"))):
        group = dist.new_group()
        tensor = torch.ones(1000)
        if RANK == 1:
            tensor[777] = bad
        text = error_of(lambda: dist.all_reduce(tensor, group=group))
        assert "E_NON_FINITE" in text, (number, text)


@checks.check
def different_sizes_raise_on_every_rank_and_show_both():
    group = dist.new_group(timeout=datetime.timedelta(seconds=10))
    text = error_of(lambda: dist.all_reduce(torch.ones(1013 if RANK == 2 else 1012), group=group))
    assert "E_MISMATCH" in text and "1012" in text and "1013" in text, text


@checks.check
def different_collectives_raise_on_every_rank_and_show_both():
    group = dist.new_group(timeout=datetime.timedelta(seconds=10))
    wrong = RANK == 0
    text = error_of(lambda: dist.barrier(group=group) if wrong else dist.all_reduce(torch.ones(4), group=group))
    assert "E_MISMATCH" in text and "barrier" in text.lower() and "reduce" in text.lower(), text


@checks.check
def everything_native_was_summed_in_the_kernel():
    stats = mlnet.stats()
    assert stats["summed_in_kernel"] > 0 and stats["summed_in_user_space"] == 0, stats


dist.barrier()
checks.report()
dist.destroy_process_group()
