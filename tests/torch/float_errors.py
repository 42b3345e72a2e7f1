# SPDX-License-Identifier: Apache-2.0
"""How far float32 sums are from the exact sum, and what a float32 ring all-reduce would have made of the same inputs.

`inputs` is float32[ranks, elements]. Errors are compared in float64, whose own rounding of a sum of a few float32 is
2^-29 of float32's.
"""
import numpy

BLOCK = 32  # elements that share an exponent in mlnet's float32 lanes
SMALL = 2.0 ** -10  # of the block's largest magnitude over all ranks; below that an element is called small


def exact_sum(inputs):
    return inputs.astype(numpy.float64).sum(axis=0)


def ring_sum(inputs):
    """As a ring adds: a chunk per rank; chunk c starts at rank c, each next rank adds its own and rounds."""
    ranks, elements = inputs.shape
    total = numpy.empty(elements, numpy.float32)
    edges = [elements * chunk // ranks for chunk in range(ranks + 1)]
    for chunk in range(ranks):
        part = slice(edges[chunk], edges[chunk + 1])
        partial = inputs[chunk, part].copy()
        for hop in range(1, ranks):
            partial += inputs[(chunk + hop) % ranks, part]
        total[part] = partial
    return total


def smallness(inputs):
    """True where an element that is not zero is small beside its block: where a shared exponent costs most."""
    sizes = numpy.abs(inputs).max(axis=0).astype(numpy.float64)
    padded = numpy.pad(sizes, (0, -len(sizes) % BLOCK)).reshape(-1, BLOCK)
    largest = numpy.repeat(padded.max(axis=1), BLOCK)[:len(sizes)]
    return (sizes > 0) & (sizes < SMALL * largest)


def measure(total, inputs):
    """Errors of the sum `total`. Relative ones are relative to the sum of the element's magnitudes over the ranks."""
    exact, ring = exact_sum(inputs), ring_sum(inputs)
    error = numpy.abs(total.astype(numpy.float64) - exact)
    ring_error = numpy.abs(ring.astype(numpy.float64) - exact)
    magnitudes = numpy.abs(inputs).astype(numpy.float64).sum(axis=0)
    used = magnitudes > 0
    relative = error[used] / magnitudes[used]
    small = smallness(inputs)
    of_small = error[small] / magnitudes[small] if small.any() else numpy.zeros(1)
    return {
        "rms": float(numpy.sqrt((error ** 2).mean())),
        "largest": float(error.max()),
        "worse_than_ring": float((error[used] > ring_error[used]).mean()),
        "better_than_ring": float((error[used] < ring_error[used]).mean()),
        "nearest_float": float((total[used] == exact[used].astype(numpy.float32)).mean()),
        "relative_rms": float(numpy.sqrt((relative ** 2).mean())),
        "relative_largest": float(relative.max()),
        "small": float(small.sum() / used.sum()),
        "small_relative_median": float(numpy.median(of_small)),
        "small_relative_largest": float(of_small.max()),
    }


HEADER = (f"{'bucket':<30}{'sum by':<15}{'rms':>10}{'largest':>10}{'worse':>8}{'better':>8}{'nearest':>9}"
          f"{'rel. rms':>10}{'rel. max':>10}{'small':>7}{'median':>10}{'max':>10}")


def row(bucket, by, found):
    """One line under HEADER; its last three columns: the share of small elements, and their relative errors."""
    return (f"{bucket:<30}{by:<15}{found['rms']:>10.2e}{found['largest']:>10.2e}{found['worse_than_ring']:>8.1%}"
            f"{found['better_than_ring']:>8.1%}{found['nearest_float']:>9.1%}{found['relative_rms']:>10.1e}"
            f"{found['relative_largest']:>10.1e}{found['small']:>7.1%}{found['small_relative_median']:>10.1e}"
            f"{found['small_relative_largest']:>10.1e}")
