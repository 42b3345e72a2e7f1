/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The check word (rule 6, <mlnet/wire.h>): verified before anything is counted or published, summed
 * in the slot like data, and set anew with this hop's own mix when a packet leaves.
 */
#ifndef MLNET_AGGREGATE_CHECK_BPF_H
#define MLNET_AGGREGATE_CHECK_BPF_H

#include "../lib/lanes.bpf.h"
#include "../lib/parse.bpf.h"

/* Trailer fields as the words that are mixed. */
struct trailer_words {
	__u64 bitmap;
	__u64 weight; /* reserved in bits 16-31 */
	__u64 e0, e1, e2; /* exponents 0-7, 8-15, 16-21 */
};

static __always_inline __u64 check_mix(__u64 h0, __u64 h1, __u64 h2, const struct trailer_words *t)
{
	return h0 * MLNET_MIX_K(0) + h1 * MLNET_MIX_K(1) + h2 * MLNET_MIX_K(2) +
	       t->bitmap * MLNET_MIX_K(3) + t->weight * MLNET_MIX_K(4) + t->e0 * MLNET_MIX_K(5) +
	       t->e1 * MLNET_MIX_K(6) + t->e2 * MLNET_MIX_K(7) + MLNET_MIX_K(MLNET_MIX_WORDS);
}

static __always_inline void trailer_load(const void *trailer, struct trailer_words *t, __u64 *check)
{
	*check = ld64(trailer);
	t->bitmap = ld64(trailer + 8);
	t->weight = ld32(trailer + 16);
	t->e0 = ld64(trailer + 20);
	t->e1 = ld64(trailer + 28);
	t->e2 = ld48(trailer + 36);
}

static __always_inline void trailer_store(void *trailer, const struct trailer_words *t, __u64 check)
{
	st64(trailer, check);
	st64(trailer + 8, t->bitmap);
	st32(trailer + 16, (__u32)t->weight);
	st64(trailer + 20, t->e0);
	st64(trailer + 28, t->e1);
	st48(trailer + 36, t->e2);
}

/* S of one block, added to `sum`. Two adders let the processor overlap the chains. */
static __always_inline __u64 block_sum64(const void *block, __u64 sum)
{
	const __u64 *w = block;
	__u64 odd = 0;

#pragma unroll
	for (int i = 0; i < MLNET_BLOCK_WORDS; i += 2) {
		sum += w[i];
		odd += w[i + 1];
	}
	return sum + odd;
}

static __always_inline __u64 block_sum32(const void *block, __u64 sum)
{
	const __u64 *w = block;
	__u64 low = (__u32)sum, high = sum >> 32;

#pragma unroll
	for (int i = 0; i < MLNET_BLOCK_WORDS; i++) {
		low += (__u32)w[i];
		high += w[i] >> 32;
	}
	return (low & 0xffffffff) | (high << 32);
}

static __always_inline __u64 sums_add(__u8 op, __u64 a, __u64 b)
{
	return op == MLNET_OP_ADD32 ? add32x2(a, b) : a + b;
}

/* Whether the packet arrived as it was sent. Gives S and the trailer's fields. */
static __always_inline int check_verify(const struct pkt *p, struct trailer_words *t, __u64 *sum_out)
{
	const void *block = pkt_payload(p);
	__u64 sum = 0, check;
	__u32 n = pkt_loop_blocks(p);

	trailer_load(p->trailer, t, &check);
	for (__u32 b = 0; b < MLNET_BLOCKS_MAX; b++) {
		if (b >= n)
			break;
		if (!fits(block, MLNET_BLOCK_BYTES, p->data_end))
			return 0;
		sum = p->op == MLNET_OP_ADD32 ? block_sum32(block, sum) : block_sum64(block, sum);
		block += MLNET_BLOCK_BYTES;
	}
	*sum_out = sum;
	return check == sum + check_mix(p->h0, p->h1, p->h2, t);
}

#endif /* MLNET_AGGREGATE_CHECK_BPF_H */
