# SPDX-License-Identifier: Apache-2.0
"""Communication hooks for DistributedDataParallel that send less: narrow lanes, or only the largest gradients.

    from mlnet.hooks import CompressState, compress_hook
    model = DistributedDataParallel(model)
    model.register_comm_hook(CompressState(wire="int8"), compress_hook)

What a step does not send is kept and added to the next step's gradients (error feedback), so it is late, not lost.
What is kept is one float32 tensor per DDP bucket; DDP lays its buckets out anew after the first step, and then it
begins again at zero.
"""
import math

import torch
import torch.distributed as dist

import mlnet

__all__ = ["CompressState", "compress_hook", "TopKState", "topk_hook"]

WIRES = ("int32", "int16", "int8")


class _KeptTensors:
    """Tensors that outlive a step, per bucket; those of a bucket that has changed its layout are dropped."""

    def __init__(self):
        self._kept = {}  # bucket index -> (layout, tensors)

    def of(self, bucket, count):
        """`count` float32 tensors of the bucket's length: those of the last step, or zeros."""
        layout = tuple((parameter.data_ptr(), parameter.numel()) for parameter in bucket.parameters())
        known, tensors = self._kept.get(bucket.index(), (None, None))
        if known != layout:
            tensors = [torch.zeros_like(bucket.buffer(), dtype=torch.float32) for _ in range(count)]
            self._kept[bucket.index()] = (layout, tensors)
        if bucket.is_last():
            self._kept = {index: kept for index, kept in self._kept.items() if index <= bucket.index()}
        return tensors

    def clear(self):
        self._kept.clear()


def _size_of(group):
    return dist.get_world_size(group)


def _float32_gradients(bucket):
    """The bucket's gradients as float32: its own buffer if it is that already, else a copy."""
    if not bucket.buffer().is_floating_point():
        raise TypeError(f"mlnet's hooks reduce real floating-point gradients, not {bucket.buffer().dtype}")
    return bucket.buffer().float()


class CompressState:
    """State of `compress_hook`, one per DDP model.

    group       process group of backend mlnet; None is the whole world
    wire        lanes on the wire: "int32" (4 bytes an element), "int16" (2) or "int8" (1)
    feedback    keep what quantisation rounded away and add it to the next step's gradients
    stochastic  round up or down by chance, in proportion to the distance; reproducible
    """

    def __init__(self, group=None, wire="int16", feedback=True, stochastic=False):
        if wire not in WIRES:
            raise ValueError(f"wire is one of {', '.join(WIRES)}, not {wire!r}")
        self.group, self.wire, self.feedback, self.stochastic = group, wire, feedback, stochastic
        self._residuals = _KeptTensors()

    def reset(self):
        """Forgets the residuals, as after loading other parameters into the model. Not while a step is under way."""
        self._residuals.clear()


def compress_hook(state, bucket):
    """DDP hook: averages gradients over the ranks with lanes of `state.wire`; returns a future of the average.

    All ranks get the same bits. Gradients of other floating-point types are reduced as float32.
    """
    gradients = _float32_gradients(bucket)
    residual = None
    if state.feedback:
        residual, = state._residuals.of(bucket, 1)
        gradients.add_(residual)
    work = mlnet.all_reduce(gradients, group=state.group, wire=state.wire, residual=residual,
                            stochastic=state.stochastic, async_op=True)

    def average(future):
        future.value()  # raises what the collective raised
        return bucket.buffer().copy_(gradients.div_(_size_of(state.group)))

    return work.get_future().then(average)


class TopKState:
    """State of `topk_hook`, one per DDP model.

    group         process group of any backend with all_gather; None is the whole world
    ratio         share of a bucket's elements that each rank sends per step, at least one
    warmup_steps  steps in which the share falls from `first_ratio` to `ratio`, by the same factor each step; training
                  begins with large gradients that change quickly, and late ones do most harm there
    momentum      momentum correction: the momentum is applied here, before the choice, and an element that is sent
                  starts anew. The optimiser's own momentum must then be 0
    """

    def __init__(self, group=None, ratio=0.01, warmup_steps=100, first_ratio=0.25, momentum=0.0):
        if not 0 < ratio <= first_ratio <= 1:
            raise ValueError(f"needs 0 < ratio <= first_ratio <= 1, not {ratio} and {first_ratio}")
        if warmup_steps < 0 or not 0 <= momentum < 1:
            raise ValueError(f"needs warmup_steps >= 0 and 0 <= momentum < 1, not {warmup_steps} and {momentum}")
        self.group, self.ratio, self.momentum = group, ratio, momentum
        self.warmup_steps, self.first_ratio = warmup_steps, first_ratio
        self.step = 0
        self._kept = _KeptTensors()

    def ratio_now(self):
        """The share that is sent in the current step; the same on all ranks, since they take the same steps."""
        if self.step >= self.warmup_steps:
            return self.ratio
        return self.first_ratio * (self.ratio / self.first_ratio) ** (self.step / self.warmup_steps)

    def reset(self):
        """Forgets what has not been sent, as after loading other parameters into the model; the warm-up goes on."""
        self._kept.clear()


def topk_hook(state, bucket):
    """DDP hook: averages the gradients that are largest after accumulation (Deep Gradient Compression).

    Each rank adds its gradients to what it has not sent yet, sends the k elements that are largest by magnitude as
    pairs of index and value, and keeps the rest. All ranks add all pairs up in rank order: the same bits everywhere.
    The pairs are 8 bytes, and a rank receives those of all ranks; so it pays off while ratio * ranks is far below 1/2.
    """
    gradients = _float32_gradients(bucket)
    unsent, velocity = state._kept.of(bucket, 2) if state.momentum else (*state._kept.of(bucket, 1), None)
    if velocity is not None:
        gradients = velocity.mul_(state.momentum).add_(gradients)
    unsent.add_(gradients)
    pairs = _take_largest(unsent, velocity, max(1, math.ceil(state.ratio_now() * unsent.numel())))
    if bucket.is_last():
        state.step += 1

    size = _size_of(state.group)
    gathered = [torch.empty_like(pairs) for _ in range(size)]
    work = dist.all_gather(gathered, pairs, group=state.group, async_op=True)

    def average(future):
        future.value()  # raises what the collective raised
        total = torch.zeros_like(unsent)
        for indices, values in gathered:
            total.index_add_(0, indices, values.view(torch.float32))
        return bucket.buffer().copy_(total.div_(size))

    return work.get_future().then(average)


def _take_largest(unsent, velocity, k):
    """Takes the k largest elements out of `unsent`; returns them as int32[2, k]: indices, and the values' bits."""
    indices = unsent.abs().topk(k, sorted=False).indices
    values = unsent[indices]
    unsent[indices] = 0
    if velocity is not None:
        velocity[indices] = 0  # else old momentum would be applied to what has been sent already
    return torch.stack([indices.to(torch.int32), values.view(torch.int32)])
