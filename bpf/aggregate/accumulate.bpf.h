/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stage 4 of the packet path: the sum. Payload words are 64-bit little-endian, each holding biased
 * lanes that cannot carry into each other (DESIGN section 5), so one add sums all lanes of a word.
 * REQUIRES throughout: the slot's lock is held; no helper calls.
 */
#ifndef MLNET_AGGREGATE_ACCUMULATE_BPF_H
#define MLNET_AGGREGATE_ACCUMULATE_BPF_H

#include "check.bpf.h"

static __always_inline __u64 word_combine(__u8 op, __u64 a, __u64 b)
{
	switch (op) {
	case MLNET_OP_ADD32:
		return add32x2(a, b);
	case MLNET_OP_MAX8:
		return max8x8(a, b);
	case MLNET_OP_OR:
		return a | b;
	case MLNET_OP_MAX16:
		return max16x4(a, b);
	case MLNET_OP_MAX32:
		return max32x2(a, b);
	case MLNET_OP_MAX64:
		return a > b ? a : b;
	case MLNET_OP_XOR:
		return a ^ b;
	default:
		return a + b;
	}
}

/* One loop per operation: the operation is a constant inside, so no branch per word. */
#define WORDS_LOOP(p, words, statement) \
	do { \
		__u64 *slot_block = (words)->w; \
		__u64 *packet_block = pkt_payload(p); \
		__u32 n = pkt_loop_blocks(p); \
		for (__u32 b = 0; b < MLNET_BLOCKS_MAX; b++) { \
			if (b >= n || !fits(packet_block, MLNET_BLOCK_BYTES, (p)->data_end)) \
				break; \
			_Pragma("unroll") for (int i = 0; i < MLNET_BLOCK_WORDS; i++) { statement; } \
			slot_block += MLNET_BLOCK_WORDS; \
			packet_block += MLNET_BLOCK_WORDS; \
		} \
	} while (0)

#define WORDS_COMBINE(p, words, op) \
	WORDS_LOOP(p, words, slot_block[i] = word_combine(op, slot_block[i], packet_block[i]))

/* The packet's words into the slot: the first are copied, later ones combined. */
static __always_inline void words_add(struct mlnet_words *words, const struct pkt *p, int is_first)
{
	if (is_first)
		WORDS_LOOP(p, words, slot_block[i] = packet_block[i]);
	else if (p->op == MLNET_OP_ADD64)
		WORDS_COMBINE(p, words, MLNET_OP_ADD64);
	else if (p->op == MLNET_OP_ADD32)
		WORDS_COMBINE(p, words, MLNET_OP_ADD32);
	else if (p->op == MLNET_OP_MAX8)
		WORDS_COMBINE(p, words, MLNET_OP_MAX8);
	else if (p->op == MLNET_OP_OR)
		WORDS_COMBINE(p, words, MLNET_OP_OR);
	else if (p->op == MLNET_OP_MAX16)
		WORDS_COMBINE(p, words, MLNET_OP_MAX16);
	else if (p->op == MLNET_OP_MAX32)
		WORDS_COMBINE(p, words, MLNET_OP_MAX32);
	else if (p->op == MLNET_OP_MAX64)
		WORDS_COMBINE(p, words, MLNET_OP_MAX64);
	else
		WORDS_COMBINE(p, words, MLNET_OP_XOR);
}

/* The slot's words into the packet. */
static __always_inline void words_write(const struct pkt *p, struct mlnet_words *words)
{
	WORDS_LOOP(p, words, packet_block[i] = slot_block[i]);
}

static __always_inline void words_clear(const struct pkt *p, struct mlnet_words *words)
{
	WORDS_LOOP(p, words, slot_block[i] = 0; (void)packet_block);
}

/* S over what the slot holds, for operations whose S is not the sum of the contributions' S. */
static __always_inline __u64 words_sum(const struct pkt *p, struct mlnet_words *words)
{
	__u64 sum = 0;

	WORDS_LOOP(p, words, sum += slot_block[i]; (void)packet_block);
	return sum;
}

static __always_inline void exps_merge(struct mlnet_set *set, const struct trailer_words *t, __u8 op_wire)
{
	if (!(t->e0 | t->e1 | t->e2)) /* also what integer traffic carries */
		return;
	if ((op_wire & 0xf) == MLNET_WIRE_FLOAT64) {
		st64(set->exps, max16x4(ld64(set->exps), t->e0));
		st64(set->exps + 8, max16x4(ld64(set->exps + 8), t->e1));
		st48(set->exps + 16, max16x4(ld48(set->exps + 16), t->e2));
		return;
	}
	st64(set->exps, max8x8(ld64(set->exps), t->e0));
	st64(set->exps + 8, max8x8(ld64(set->exps + 8), t->e1));
	st48(set->exps + 16, max8x8(ld48(set->exps + 16), t->e2));
}

/* Everything that a contribution adds to its set. */
static __always_inline void set_contribute(struct mlnet_set *set, struct mlnet_words *words,
					   const struct pkt *p, const struct trailer_words *t, __u64 sum)
{
	set->contributed |= 1ULL << (p->child & 63);
	set->flags |= (p->flags & MLNET_F_OR_MASK) | pkt_congestion(p);
	exps_merge(set, t, p->op_wire);
	if (p->flags & MLNET_F_NO_DATA)
		return;
	set->weight += t->weight;
	if (!p->blocks)
		return;
	words_add(words, p, !set->has_words);
	set->check = sums_add(p->op, set->check, sum);
	set->has_words = 1;
}

#endif /* MLNET_AGGREGATE_ACCUMULATE_BPF_H */
