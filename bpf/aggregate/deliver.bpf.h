/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stage 6 of the packet path, on a host with ranks: results go straight into the memory that the ranks
 * have mapped, other answers into the ring of the rank they are for.
 *
 * Rule 5: a cell is written only by a higher (epoch, seq), by the one writer that won the
 * compare-and-swap on `claimed`. The next writer of a cell is seq + 2P, which the aggregator completes
 * only after every rank here has sent it, and so has consumed this one: nobody reads while it is written.
 */
#ifndef MLNET_AGGREGATE_DELIVER_BPF_H
#define MLNET_AGGREGATE_DELIVER_BPF_H

#include "check.bpf.h"
#include "maps.bpf.h"

static __always_inline struct mlnet_cell *cell_find(const struct pkt *p, const struct mlnet_node *node, __u32 inbox_id)
{
	const struct mlnet_pool *pool = &node->pools[masked(p->class_stream, MLNET_POOLS_MAX - 1)];
	__u32 log2_slots = pool->log2_slots & 31;
	__u32 slot = p->seq & ((1ULL << log2_slots) - 1), set = (p->seq >> log2_slots) & 1;
	__u32 key = pool->cell_base + slot * 2 + set;
	void *inbox = bpf_map_lookup_elem(&ml_inboxes, &inbox_id);

	return inbox ? bpf_map_lookup_elem(inbox, &key) : NULL;
}

/*
 * The words that a result is going to replace, for the verification to fetch; NULL: it goes nowhere. An inbox is larger than the
 * caches near the processor, and the ranks have read it on others.
 */
static __always_inline const __u64 *cell_fetch(const struct pkt *p, const struct mlnet_node *node)
{
	struct mlnet_cell *cell = p->type == MLNET_T_RESULT ? cell_find(p, node, node->inbox_id) : NULL;

	if (!cell)
		return NULL;
	ld64_unused(&cell->claimed);
	return cell->w;
}

/* 1: this program instance, and no other, writes the cell for `stamp`. */
static __always_inline int cell_claim(struct mlnet_cell *cell, __u64 stamp)
{
	__u64 newest = *(volatile __u64 *)&cell->claimed;

	if (newest >= stamp)
		return 0;
	return __sync_val_compare_and_swap(&cell->claimed, newest, stamp) == newest;
}

static __always_inline void cell_write(struct mlnet_cell *cell, const struct pkt *p,
				       const struct trailer_words *t, __u64 stamp)
{
	__u64 *cell_block = cell->w;
	const __u64 *packet_block = pkt_payload(p);
	__u32 n = pkt_loop_blocks(p);

	cell->bitmap = t->bitmap;
	cell->time_ns = bpf_ktime_get_ns();
	cell->fingerprint = p->fingerprint;
	cell->weight = t->weight;
	cell->words = p->words;
	cell->op_wire = p->op_wire;
	cell->flags = p->flags | pkt_congestion(p);
	st64(cell->exps, t->e0);
	st64(cell->exps + 8, t->e1);
	st48(cell->exps + 16, t->e2);
	for (__u32 b = 0; b < MLNET_BLOCKS_MAX; b++) {
		if (b >= n || !fits(packet_block, MLNET_BLOCK_BYTES, p->data_end))
			break;
#pragma unroll
		for (int i = 0; i < MLNET_BLOCK_WORDS; i++)
			cell_block[i] = packet_block[i];
		cell_block += MLNET_BLOCK_WORDS;
		packet_block += MLNET_BLOCK_WORDS;
	}
	__sync_lock_test_and_set(&cell->published, stamp); /* full barrier: the words are visible first */
}

static __always_inline int ring_send(__u32 ring_id, struct mlnet_notice *notice)
{
	void *ring = bpf_map_lookup_elem(&ml_rings, &ring_id);

	return ring ? bpf_ringbuf_output(ring, notice, sizeof(*notice), BPF_RB_FORCE_WAKEUP) : -1;
}

static __always_inline int notice_send(const struct mlnet_node *node, __u32 local, struct mlnet_notice *notice)
{
	return ring_send(node->local_ring[masked(local, MLNET_CHILDREN_MAX - 1)], notice);
}

/*
 * Takes the bits of those that sleep on an inbox, to wake them. A rank sets its bit, fences, and looks at the cell once more before it
 * sleeps; here the cell is published before the bits are taken: one of the two sees the other.
 */
static __always_inline __u64 asleep_take(__u32 inbox_id)
{
	__u32 zero = 0;
	void *inner = bpf_map_lookup_elem(&ml_wakes, &inbox_id);
	struct mlnet_wake *wake = inner ? bpf_map_lookup_elem(inner, &zero) : NULL;

	if (!wake || !*(volatile __u64 *)&wake->asleep)
		return 0;
	return __sync_lock_test_and_set(&wake->asleep, 0);
}

static __always_inline void ranks_wake(const struct mlnet_node *node)
{
	__u64 asleep = asleep_take(node->inbox_id);
	struct mlnet_notice notice = {};

	if (!asleep)
		return;
	for (__u32 local = 0; local < MLNET_CHILDREN_MAX; local++) {
		if (local >= node->n_local)
			break;
		if (asleep & (1ULL << local))
			notice_send(node, local, &notice);
	}
}

/* A packet without its payload is a whole result only where it says that there is nothing to read. */
static __always_inline int result_is_whole(const struct pkt *p)
{
	return p->blocks || !p->words || p->flags & MLNET_F_NO_DATA;
}

/* What the packet holds into its cell of an inbox. */
static __always_inline enum mlnet_verdict cell_deliver(const struct pkt *p, const struct mlnet_node *node, __u32 inbox_id,
						       const struct trailer_words *t)
{
	__u64 stamp = MLNET_STAMP(p->epoch, p->seq);
	struct mlnet_cell *cell;

	cell = cell_find(p, node, inbox_id);
	if (!cell)
		return MLNET_V_DROP_NO_POOL;
	if (!cell_claim(cell, stamp))
		return MLNET_V_DROP_RESULT_OLD;
	cell_write(cell, p, t, stamp);
	return MLNET_V_DELIVERED;
}

static __always_inline enum mlnet_verdict result_deliver(const struct pkt *p, const struct mlnet_node *node,
							 const struct trailer_words *t)
{
	enum mlnet_verdict verdict;

	if (!result_is_whole(p))
		return MLNET_V_DROP_MALFORMED;
	verdict = cell_deliver(p, node, node->inbox_id, t);
	if (verdict == MLNET_V_DELIVERED)
		ranks_wake(node);
	return verdict;
}

static __always_inline struct mlnet_notice notice_of(const struct pkt *p, const struct trailer_words *t, __u8 child)
{
	struct mlnet_notice notice = {
		.type = p->type,
		.tree = p->tree,
		.class_stream = p->class_stream,
		.child = child,
		.epoch = p->epoch,
		.seq = p->seq,
		.bitmap = t->bitmap,
		.fingerprint = p->fingerprint,
	};

	return notice;
}

/* HELD, BUSY, RESEND and MISMATCH: to the rank whose packet they answer. */
static __always_inline enum mlnet_verdict reply_deliver(const struct pkt *p, const struct mlnet_node *node,
							const struct trailer_words *t)
{
	struct mlnet_notice notice = notice_of(p, t, p->child);
	__u8 local = node->child_local[masked(p->child, MLNET_CHILDREN_MAX - 1)];

	if (p->child >= MLNET_CHILDREN_MAX || !local)
		return MLNET_V_DROP_NOT_MEMBER;
	return notice_send(node, local - 1, &notice) ? MLNET_V_NOTICE_LOST : MLNET_V_NOTICE;
}

#endif /* MLNET_AGGREGATE_DELIVER_BPF_H */
