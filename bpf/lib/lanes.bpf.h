/* SPDX-License-Identifier: GPL-2.0-only */
/* Arithmetic on several lanes of one 64-bit word. No mlnet policy. */
#ifndef MLNET_LIB_LANES_BPF_H
#define MLNET_LIB_LANES_BPF_H

#include "bytes.bpf.h"

#define LANES32_HIGH 0x8000000080000000ULL
#define LANES16_HIGH 0x8000800080008000ULL
#define LANES8_HIGH 0x8080808080808080ULL

/* Two 32-bit adds: what the lower lane carries into bit 32, where x differs from a ^ b, is taken out again. */
static __always_inline __u64 add32x2(__u64 a, __u64 b)
{
	__u64 x = a + b;

	return x - ((a ^ b ^ x) & 1ULL << 32);
}

/* Unsigned maxima of all lanes: a borrow-free compare per lane, widened to a select mask. */
static __always_inline __u64 max_lanes(__u64 a, __u64 b, __u64 high, __u32 bits)
{
	__u64 low_ge = (a | high) - (b & ~high);
	__u64 ge = ((a & ~b) | (~(a ^ b) & low_ge)) & high;
	__u64 mask = (ge >> (bits - 1)) * ((1ULL << bits) - 1);

	return (a & mask) | (b & ~mask);
}

static __always_inline __u64 max8x8(__u64 a, __u64 b)
{
	return max_lanes(a, b, LANES8_HIGH, 8);
}

static __always_inline __u64 max16x4(__u64 a, __u64 b)
{
	return max_lanes(a, b, LANES16_HIGH, 16);
}

static __always_inline __u64 max32x2(__u64 a, __u64 b)
{
	return max_lanes(a, b, LANES32_HIGH, 32);
}

#endif /* MLNET_LIB_LANES_BPF_H */
