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
SMALL_BYTES = 16384  # of all ranks together


def values(rank, count, dtype, salt=0):
    random = numpy.random.RandomState(1000 * salt + rank)
    if dtype.kind == "f":
        return (random.standard_normal(count) * 10.0 ** random.uniform(-3, 3, count)).astype(dtype)
    info = numpy.iinfo(dtype)
    return random.randint(info.min, info.max, count, dtype=dtype)


def per_rank(count, dtype, salt=0, ranks=range(SIZE)):
    return numpy.stack([values(rank, count, numpy.dtype(dtype), salt) for rank in ranks])


def expect_sum(got, inputs):
    """int: equal, wrapping. float32: adds in rank order where small, else within the bound of each block of 32."""
    assert got.shape == inputs.shape[1:], f"shape {got.shape}, not {inputs.shape[1:]}"
    if inputs.dtype.kind != "f":
        with numpy.errstate(over="ignore"):
            numpy.testing.assert_array_equal(got, inputs.sum(axis=0, dtype=inputs.dtype))
        return
    ranks = len(inputs)
    if inputs.nbytes <= SMALL_BYTES:
        expected = inputs[0].copy()
        for addend in inputs[1:]:
            expected += addend
        numpy.testing.assert_array_equal(got, expected)
        return
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
def reduce_gather_and_scatter_serve_their_root():
    for root in range(SIZE):
        tensor = torch.full((400,), float(RANK))
        dist.reduce(tensor, dst=root)
        assert (tensor == (SIZE * (SIZE - 1) / 2 if RANK == root else float(RANK))).all()
        mine = torch.arange(333, dtype=torch.float64) + 1000 * RANK
        lists = [torch.empty(333, dtype=torch.float64) for _ in range(SIZE)] if RANK == root else None
        dist.gather(mine, lists, dst=root)
        if RANK == root:
            for rank in range(SIZE):
                assert torch.equal(lists[rank], torch.arange(333, dtype=torch.float64) + 1000 * rank)
        parts = [torch.full((7, 3), 10 * root + rank) for rank in range(SIZE)] if RANK == root else None
        out = torch.zeros(3, 7, dtype=torch.int64).t()
        dist.scatter(out, parts, src=root)
        assert (out == 10 * root + RANK).all(), out


@checks.check
def reduce_scatter_gives_each_rank_its_part():
    for dtype in ("int32", "float32"):
        inputs = per_rank(SIZE * 1000, dtype, 31)
        parts = list(torch.from_numpy(inputs[RANK].copy()).view(SIZE, 1000))
        out = torch.empty(1000, dtype=parts[0].dtype)
        dist.reduce_scatter(out, parts)
        with numpy.errstate(over="ignore"):
            expected = inputs.sum(axis=0, dtype=inputs.dtype)[RANK * 1000:(RANK + 1) * 1000]
        numpy.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=0.1 if dtype == "float32" else 0)
        flat = torch.empty_like(out)
        dist.reduce_scatter_tensor(flat, torch.cat(parts))
        assert torch.equal(out, flat)


@checks.check
def what_the_slot_engine_lacks_goes_to_gloo_and_is_counted():
    before = mlnet.stats()["delegated_calls"]
    for dtype in (torch.int64, torch.float32, torch.int64, torch.bfloat16, torch.int16):
        tensor = torch.full((6, 11), 2, dtype=dtype)
        dist.all_reduce(tensor.t(), op=dist.ReduceOp.PRODUCT)
        assert (tensor == 2 ** SIZE).all(), tensor
    received = torch.empty(SIZE, dtype=torch.int64)
    dist.all_to_all_single(received, torch.arange(SIZE) + 10 * RANK)
    assert received.tolist() == [10 * rank + RANK for rank in range(SIZE)]
    mine = torch.empty(2)
    if RANK == 0:
        dist.send(torch.tensor([42.0]), dst=1)
    if RANK == 1:
        dist.recv(mine[:1], src=0)
        assert mine[0] == 42
    stats = mlnet.stats()
    assert stats["delegated"]["all_reduce int64 PRODUCT"] == 2, stats
    assert stats["delegated_calls"] - before == 6 + (RANK < 2), stats


@checks.check
def what_neither_can_do_is_refused_by_name():
    text = error_of(lambda: dist.all_reduce(torch.ones(3), op=dist.ReduceOp.BAND))
    assert "all_reduce float32 BAND" in text and "the slot engine has" in text, text
    text = error_of(lambda: dist.reduce_scatter(torch.ones(3), [torch.ones(3)] * SIZE, op=dist.ReduceOp.PRODUCT))
    assert "reduce_scatter float32 PRODUCT is not supported" in text, text
    text = error_of(lambda: dist.all_gather([torch.empty(3)] * SIZE, torch.empty(4)))
    assert "float32[3]" in text and "float32[4]" in text, text
    text = error_of(lambda: mlnet.all_reduce(torch.ones(3), wire="int4"))
    assert "wire type 'int4' is unknown" in text, text
    os.environ["MLNET_FALLBACK"] = "none"
    text = error_of(lambda: dist.all_reduce(torch.ones(3), op=dist.ReduceOp.PRODUCT))
    del os.environ["MLNET_FALLBACK"]
    assert "all_reduce float32 PRODUCT" in text and "MLNET_FALLBACK=none" in text, text


@checks.check
def monitored_barrier_names_who_did_not_come():
    dist.monitored_barrier()
    group = dist.new_group()
    if RANK == SIZE - 1:
        return
    text = error_of(lambda: dist.monitored_barrier(group, timeout=datetime.timedelta(seconds=1)))
    assert f"Rank {SIZE - 1} failed to pass monitoredBarrier" in text, text


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
def different_collectives_raise_on_every_rank_and_show_both():
    group = dist.new_group(timeout=datetime.timedelta(seconds=10))
    wrong = RANK == 0
    text = error_of(lambda: dist.barrier(group=group) if wrong else dist.all_reduce(torch.ones(4), group=group))
    assert "E_MISMATCH" in text and "barrier" in text.lower() and "reduce" in text.lower(), text


@checks.check
def large_tensors_are_summed_in_the_kernel_and_small_floats_by_the_ranks():
    before = mlnet.stats()
    dist.all_reduce(torch.ones(16384 // 4 // SIZE + 1))
    after = mlnet.stats()
    assert after["summed_in_user_space"] == before["summed_in_user_space"], after
    assert after["summed_in_kernel"] > before["summed_in_kernel"], after
    dist.all_reduce(torch.ones(16384 // 4 // SIZE))
    assert mlnet.stats()["summed_in_user_space"] > after["summed_in_user_space"]


dist.barrier()
checks.report()
dist.destroy_process_group()
