# SPDX-License-Identifier: Apache-2.0
"""mlnet's block fixed-point sum by its definition, in numpy: what tests compare the real one with.

A block is 128 bytes on the wire: 32, 64 or 128 elements. n ranks use R = 2^(L - 1 - ceil(log2 n)) steps each way of an
L-bit lane; E is the largest biased exponent of the block over all ranks and T = 2^(E - 126). A rank sends
q = clamp(rint(x R / T), -R, R - 1); the sum is (sum of q) T / R. All of this is exact in float64.
"""
import numpy

LANE_BITS = {"int32": 32, "int16": 16, "int8": 8}
BLOCK_BYTES = 128


def steps_of(inputs, wire):
    """(R, float64 T / R of every element) for inputs[rank, element]; the step of an empty block is 0."""
    ranks, length = inputs.shape
    block = BLOCK_BYTES * 8 // LANE_BITS[wire]
    levels = 2.0 ** (LANE_BITS[wire] - 1 - (ranks - 1).bit_length())
    padded = numpy.zeros((ranks, -(-length // block) * block), numpy.float32)
    padded[:, :length] = inputs
    exponents = (padded.view(numpy.uint32) >> 23 & 255).reshape(ranks, -1, block).max(axis=(0, 2)).astype(numpy.float64)
    steps = numpy.where(exponents > 0, 2.0 ** (exponents - 126) / levels, 0.0)
    return levels, steps.repeat(block)[:length]


def block_sum(inputs, wire):
    """(float32 sum over ranks, float32 residuals[rank, element]) of float32 inputs[rank, element]."""
    levels, steps = steps_of(inputs, wire)
    sent = numpy.zeros(inputs.shape)
    numpy.divide(inputs, steps, out=sent, where=steps > 0)
    sent = numpy.clip(numpy.rint(sent), -levels, levels - 1) * steps
    return sent.sum(axis=0).astype(numpy.float32), (inputs - sent).astype(numpy.float32)
