# SPDX-License-Identifier: Apache-2.0
"""Rank program: mlnet.hooks.topk_hook against Deep Gradient Compression written down in numpy."""
import numpy
import torch
import torch.distributed as dist

from hook_buckets import (Bucket, average_of, gradients_of_all_ranks, join_backend, parameters_of, same_bits,
                          same_on_all_ranks, train)
from rank_checks import SIZE, Checks

mlnet = join_backend()
from mlnet.hooks import TopKState, topk_hook  # noqa: E402

checks = Checks()


class Reference:
    """All ranks' accumulators at once."""

    def __init__(self, length, momentum=0.0):
        self.velocity, self.unsent = numpy.zeros((2, SIZE, length), numpy.float32)
        self.momentum = numpy.float32(momentum)

    def step(self, gradients, k):
        self.velocity = self.velocity * self.momentum + gradients
        self.unsent = self.unsent + self.velocity
        total = numpy.zeros(gradients.shape[1], numpy.float32)
        for unsent, velocity in zip(self.unsent, self.velocity):
            largest = numpy.argsort(-numpy.abs(unsent))[:k]
            total[largest] += unsent[largest]
            unsent[largest] = 0
            velocity[largest] = 0
        return total / numpy.float32(SIZE)


def compare(momentum, steps=8, length=1000, ratio=0.02):
    state, reference = TopKState(ratio=ratio, warmup_steps=0, momentum=momentum), Reference(length, momentum)
    parameters = parameters_of(600, 400)
    for step in range(steps):
        gradients = gradients_of_all_ranks(length, step)
        expected = reference.step(gradients, round(length * ratio))
        same_bits(average_of(topk_hook, state, parameters, gradients), expected)


@checks.check
def the_average_of_the_largest_is_what_the_definition_gives():
    compare(momentum=0.0)


@checks.check
def momentum_is_corrected_and_starts_anew_for_what_was_sent():
    compare(momentum=0.5)  # a power of two: the reference rounds as torch does


@checks.check
def nothing_is_lost_only_late():
    state, parameters, length = TopKState(ratio=0.1, warmup_steps=0), parameters_of(200), 200
    whole = numpy.random.RandomState(5).randint(-50, 50, (SIZE, length)).astype(numpy.float32)
    nothing, total = numpy.zeros_like(whole), torch.zeros(length)
    for step in range(10):
        total += average_of(topk_hook, state, parameters, nothing if step else whole)
    assert total.mul(SIZE).tolist() == whole.sum(axis=0).tolist()


@checks.check
def everything_is_the_average_itself():
    gradients = gradients_of_all_ranks(333, 1)
    expected = numpy.zeros(333, numpy.float32)
    for row in gradients:
        expected += row
    state = TopKState(ratio=1.0, first_ratio=1.0, warmup_steps=0)
    same_bits(average_of(topk_hook, state, parameters_of(333), gradients), expected / numpy.float32(SIZE))


@checks.check
def the_share_falls_exponentially_in_the_warm_up():
    state, parameters, length = TopKState(ratio=0.01, first_ratio=0.16, warmup_steps=4), parameters_of(10_000), 10_000
    for step, share in enumerate([0.16, 0.08, 0.04, 0.02, 0.01, 0.01]):
        assert abs(state.ratio_now() - share) < 1e-12, (step, state.ratio_now())
        average = average_of(topk_hook, state, parameters, gradients_of_all_ranks(length, step))
        found = int((average != 0).sum())
        assert length * share <= found <= SIZE * (length * share + 1), (step, found)


@checks.check
def buckets_are_independent_and_a_step_ends_with_the_last():
    state, lengths = TopKState(ratio=0.05, warmup_steps=10), (400, 300)
    parameters, references = [parameters_of(length) for length in lengths], [Reference(length) for length in lengths]
    for step in range(5):
        share = 0.25 * (0.05 / 0.25) ** (step / 10)
        for index, length in enumerate(lengths):
            gradients = gradients_of_all_ranks(length, 10 * step + index)
            expected = references[index].step(gradients, int(numpy.ceil(share * length)))
            same_bits(average_of(topk_hook, state, parameters[index], gradients, index=index, last=index == 1),
                      expected)


@checks.check
def a_new_layout_begins_at_zero():
    state, (first, second) = TopKState(ratio=0.1, warmup_steps=0), parameters_of(100, 50)
    average_of(topk_hook, state, [first, second], gradients_of_all_ranks(150, 0))
    gradients = gradients_of_all_ranks(150, 1)
    same_bits(average_of(topk_hook, state, [second, first], gradients), Reference(150).step(gradients, 15))
    # Two buckets become one: the second's accumulator is dropped too.
    one, two = parameters_of(80, 70)
    for index, parameter in enumerate((one, two)):
        average_of(topk_hook, state, [parameter], gradients_of_all_ranks(len(parameter), 2), index=index,
                   last=index == 1)
    average_of(topk_hook, state, [one, two], gradients)
    gradients = gradients_of_all_ranks(70, 3)
    average_of(topk_hook, state, [one], gradients_of_all_ranks(80, 3), last=False)
    same_bits(average_of(topk_hook, state, [two], gradients, index=1), Reference(70).step(gradients, 7))


@checks.check
def reset_forgets():
    state, parameters = TopKState(ratio=0.1, warmup_steps=0), parameters_of(100)
    gradients = gradients_of_all_ranks(100, 4)
    average_of(topk_hook, state, parameters, gradients)
    state.reset()
    same_bits(average_of(topk_hook, state, parameters, gradients), Reference(100).step(gradients, 10))


@checks.check
def wrong_options_and_gradients_are_refused():
    for options in ({"ratio": 0}, {"ratio": 2}, {"ratio": 0.5, "first_ratio": 0.25}, {"warmup_steps": -1},
                    {"momentum": 1.0}):
        try:
            TopKState(**options)
            raise AssertionError(f"{options} was accepted")
        except ValueError:
            pass
    try:
        topk_hook(TopKState(), Bucket(parameters_of(3), torch.ones(3, dtype=torch.int64)))
        raise AssertionError("integers were accepted")
    except TypeError as error:
        assert "int64" in str(error)


@checks.check
def ddp_learns_with_it_and_all_ranks_hold_the_same_bits():
    for dtype in (torch.float32, torch.float64):
        state = TopKState(ratio=0.05, warmup_steps=5, momentum=0.5)
        parameters, losses = train(lambda model: model.register_comm_hook(state, topk_hook), dtype=dtype)
        assert state.step == 30 and losses[-1] < 0.5 * losses[0], (state.step, losses)
        assert same_on_all_ranks(parameters)


@checks.check
def ddp_with_all_elements_is_ddp():
    state = TopKState(ratio=1.0, first_ratio=1.0)
    ours, _ = train(lambda model: model.register_comm_hook(state, topk_hook))
    theirs, _ = train(lambda model: None)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


dist.barrier()
checks.report()
dist.destroy_process_group()
