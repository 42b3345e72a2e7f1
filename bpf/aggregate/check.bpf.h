/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The check word (rule 6, <mlnet/wire.h>): verified before anything is counted or published, summed
 * in the slot like data, and set anew with this hop's own mix when a packet leaves.
 */
#ifndef MLNET_AGGREGATE_CHECK_BPF_H
#define MLNET_AGGREGATE_CHECK_BPF_H

#include "../lib/lanes.bpf.h"
#include "../lib/parse.bpf.h"

#define CACHE_LINE_WORDS 8

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

/*
 * One word of each cache line of the next block at *words, if anything: to have them on their way from memory before they are
 * needed, since pools are larger than the caches near the processor. Nobody looks at what is loaded, so it takes no lock.
 */
static __always_inline void block_fetch(const __u64 **words)
{
	if (!*words)
		return;
	ld64_unused(*words);
	ld64_unused(*words + CACHE_LINE_WORDS);
	*words += MLNET_BLOCK_WORDS;
}

/* Several adders: with one, each add would wait for the add before it. */
#define PAYLOAD_LOOP(w, data_end, blocks, per_block, per_pair) \
	do { \
		__u32 n = masked(blocks, BLOCKS_MASK); \
		for (__u32 b = 0; b < MLNET_BLOCKS_MAX; b++) { \
			if (b >= n || !fits(w, MLNET_BLOCK_BYTES, data_end)) \
				break; \
			per_block; \
			_Pragma("unroll") for (int i = 0; i < MLNET_BLOCK_WORDS; i += 2) { per_pair; } \
			(w) += MLNET_BLOCK_WORDS; \
		} \
	} while (0)

/*
 * S of some blocks. Functions of their own, with all registers to themselves: within the packet path clang kept the sum on
 * the stack. Their own stack may not exceed 32 bytes (README.md, "Verifier notes").
 */
static __noinline __u64 payload_sum64(const __u64 *w, const void *data_end, __u32 blocks, const __u64 *fetch)
{
	__u64 even = 0, odd = 0;

	PAYLOAD_LOOP(w, data_end, blocks, block_fetch(&fetch), even += w[i]; odd += w[i + 1]);
	return even + odd;
}

static __always_inline __u64 upper_lane(const __u64 *word)
{
	return ld32((const __u32 *)word + 1);
}

/* The low lane of a sum of words is the sum of the low lanes; only the upper ones have to be added apart. */
static __noinline __u64 payload_sum32(const __u64 *w, const void *data_end, __u32 blocks)
{
	__u64 even = 0, odd = 0, even_upper = 0, odd_upper = 0;

	PAYLOAD_LOOP(w, data_end, blocks, , even += w[i]; even_upper += upper_lane(w + i); odd += w[i + 1];
		     odd_upper += upper_lane(w + i + 1));
	return ((even + odd) & 0xffffffff) | (even_upper + odd_upper) << 32;
}

static __always_inline __u64 sums_add(__u8 op, __u64 a, __u64 b)
{
	return op == MLNET_OP_ADD32 ? add32x2(a, b) : a + b;
}

/* Whether the packet arrived as it was sent. Gives S and the trailer's fields, and fetches words that are needed next. */
static __always_inline int check_verify_fetching(const struct pkt *p, const __u64 *next, struct trailer_words *t,
						 __u64 *sum_out)
{
	__u64 sum, check;

	trailer_load(p->trailer, t, &check);
	sum = p->op == MLNET_OP_ADD32 ? payload_sum32(pkt_payload(p), p->data_end, p->blocks)
				      : payload_sum64(pkt_payload(p), p->data_end, p->blocks, next);
	*sum_out = sum;
	return check == sum + check_mix(p->h0, p->h1, p->h2, t);
}

static __always_inline int check_verify(const struct pkt *p, struct trailer_words *t, __u64 *sum_out)
{
	return check_verify_fetching(p, NULL, t, sum_out);
}

#endif /* MLNET_AGGREGATE_CHECK_BPF_H */
