# SPDX-License-Identifier: Apache-2.0
"""Rank program: mlnet.hooks.compress_hook against the definition of the block sums, in numpy."""
import datetime

import numpy
import torch
import torch.distributed as dist

from block_sums import LANE_BITS, block_sum, steps_of
from hook_buckets import (Bucket, average_of, gradients_of_all_ranks, join_backend, parameters_of, same_bits,
                          same_on_all_ranks, train)
from rank_checks import RANK, SIZE, Checks, error_of

mlnet = join_backend()
from mlnet.hooks import CompressState, TopKState, compress_hook, topk_hook  # noqa: E402

if not hasattr(mlnet, "all_reduce"):
    raise RuntimeError("this build of mlnet has no mlnet.all_reduce, which compress_hook needs")
checks = Checks()
LENGTH = 5000  # no multiple of any block


def average_by_definition(inputs, wire):
    total, residuals = block_sum(inputs, wire)
    return total / numpy.float32(SIZE), residuals


@checks.check
def the_average_and_what_is_kept_are_what_the_definition_gives():
    for wire in LANE_BITS:
        state, parameters = CompressState(wire=wire), parameters_of(LENGTH)
        residuals = numpy.zeros((SIZE, LENGTH), numpy.float32)
        for step in range(5):
            gradients = gradients_of_all_ranks(LENGTH, step)
            expected, residuals = average_by_definition(gradients + residuals, wire)
            same_bits(average_of(compress_hook, state, parameters, gradients), expected)


@checks.check
def without_feedback_every_step_stands_alone():
    for wire in LANE_BITS:
        state, parameters = CompressState(wire=wire, feedback=False), parameters_of(LENGTH)
        for step in range(3):
            gradients = gradients_of_all_ranks(LENGTH, step)
            expected, _ = average_by_definition(gradients, wire)
            same_bits(average_of(compress_hook, state, parameters, gradients), expected)


@checks.check
def feedback_sends_in_time_what_rounding_always_drops():
    gradients = numpy.full((SIZE, 128), 0.003, numpy.float32)
    gradients[:, 0] = 1
    means = {}
    for feedback in (True, False):
        state, parameters = CompressState(wire="int8", feedback=feedback), parameters_of(128)
        means[feedback] = sum(average_of(compress_hook, state, parameters, gradients) for _ in range(200)) / 200
    assert (means[False][1:] == 0).all(), means[False]
    torch.testing.assert_close(means[True], torch.from_numpy(gradients[0]), rtol=0.1, atol=0)


@checks.check
def stochastic_rounding_is_within_a_step_and_the_same_on_all_ranks():
    gradients = gradients_of_all_ranks(LENGTH, 6)
    for wire in LANE_BITS:
        state = CompressState(wire=wire, feedback=False, stochastic=True)
        average = average_of(compress_hook, state, parameters_of(LENGTH), gradients)
        exact = gradients.astype(numpy.float64).sum(axis=0) / SIZE
        _, steps = steps_of(gradients, wire)
        wrong = numpy.abs(average.numpy() - exact) > steps * 1.001 + numpy.abs(exact) * 2e-7
        assert not wrong.any(), (wire, numpy.flatnonzero(wrong)[:5])
        assert same_on_all_ranks(average)


@checks.check
def a_new_layout_begins_at_zero():
    state, (first, second) = CompressState(wire="int8"), parameters_of(1000, 500)
    average_of(compress_hook, state, [first, second], gradients_of_all_ranks(1500, 0))
    gradients = gradients_of_all_ranks(1500, 1)
    expected, _ = average_by_definition(gradients, "int8")
    same_bits(average_of(compress_hook, state, [second, first], gradients), expected)


@checks.check
def buckets_are_independent():
    state, lengths = CompressState(wire="int16"), (700, 300)
    parameters = [parameters_of(length) for length in lengths]
    residuals = [numpy.zeros((SIZE, length), numpy.float32) for length in lengths]
    for step in range(3):
        expected, futures = [], []
        for index, length in enumerate(lengths):  # both are under way at once, as in DDP
            gradients = gradients_of_all_ranks(length, 10 * step + index)
            average, residuals[index] = average_by_definition(gradients + residuals[index], "int16")
            expected.append(average)
            futures.append(compress_hook(state, Bucket(parameters[index], gradients[RANK], index, index == 1)))
        for future, average in zip(futures, expected):
            same_bits(future.wait(), average)


@checks.check
def wrong_options_and_gradients_are_refused():
    try:
        CompressState(wire="int4")
        raise AssertionError("int4 was accepted")
    except ValueError as error:
        assert "int4" in str(error) and "int8" in str(error)
    try:
        compress_hook(CompressState(), Bucket(parameters_of(3), torch.ones(3, dtype=torch.int32)))
        raise AssertionError("integers were accepted")
    except TypeError as error:
        assert "int32" in str(error)


@checks.check
def ddp_learns_with_it_and_all_ranks_hold_the_same_bits():
    theirs, _ = train(lambda model: None, momentum=0.5)
    for wire, tolerance in (("int32", 1e-5), ("int16", 1e-3), ("int8", 5e-2)):
        state = CompressState(wire=wire)
        ours, losses = train(lambda model: model.register_comm_hook(state, compress_hook), momentum=0.5)
        assert losses[-1] < 0.5 * losses[0], losses
        assert same_on_all_ranks(ours), wire
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


@checks.check
def gradients_of_other_types_are_reduced_as_float32():
    gradients = gradients_of_all_ranks(300, 7)
    expected, _ = average_by_definition(gradients, "int16")
    average = average_of(compress_hook, CompressState(), parameters_of(300), gradients.astype(numpy.float64))
    assert average.dtype == torch.float64
    same_bits(average.float(), expected)
    state = CompressState()
    _, losses = train(lambda model: model.register_comm_hook(state, compress_hook), dtype=torch.float64)
    assert losses[-1] < 0.7 * losses[0], losses


@checks.check
def what_the_collective_raises_comes_out_of_the_future():
    length = 1000 if RANK else 5000
    for make, hook in ((lambda group: CompressState(group), compress_hook),
                       (lambda group: TopKState(group, ratio=0.1, warmup_steps=0), topk_hook)):
        state = make(dist.new_group(timeout=datetime.timedelta(seconds=10)))
        bucket = Bucket(parameters_of(length), torch.ones(length))
        text = error_of(lambda: hook(state, bucket).wait())
        assert "E_MISMATCH" in text, text


dist.barrier()
checks.report()
dist.destroy_process_group()
