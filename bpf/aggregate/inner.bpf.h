/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stage 6 of the packet path, on a node that is not the root: what comes from the node above. A result is kept
 * for the children and passed on; a reply goes to those whose partial sum it is about.
 */
#ifndef MLNET_AGGREGATE_INNER_BPF_H
#define MLNET_AGGREGATE_INNER_BPF_H

#include "deliver.bpf.h"
#include "emit.bpf.h"
#include "place.bpf.h"
#include "slot.bpf.h"

/* What came in the place of the sum: kept for the children. Lock held. */
static __always_inline void set_keep_result(struct mlnet_set *set, struct mlnet_words *words, const struct pkt *p,
					    const struct mlnet_node *node, const struct trailer_words *t, __u64 sum)
{
	set->state = MLNET_SET_RESULT;
	if (!node->n_fan) /* all children read the inbox of this host */
		return;
	words_add(words, p, 1);
	set->check = sum;
	set->weight = t->weight;
	set->flags = p->flags & ~MLNET_F_NO_PAYLOAD; /* a retry is answered in full length, with zeros */
	set->has_words = !!p->blocks;
	st64(set->exps, t->e0);
	st64(set->exps + 8, t->e1);
	st48(set->exps + 16, t->e2);
}

/* The result of a partial sum that this node sent up. 1: it was not here yet. Lock held. */
static __always_inline int set_take_result(struct mlnet_set *set, struct mlnet_words *words, const struct pkt *p,
					   const struct mlnet_node *node, const struct trailer_words *t, __u64 sum)
{
	if (!set_holds(set, p->epoch, p->seq) || !set_matches(set, p) ||
	    (set->state != MLNET_SET_COMPLETE && set->state != MLNET_SET_UNSENT))
		return 0;
	set_keep_result(set, words, p, node, t, sum);
	return 1;
}

/* What comes down to an inner node: into the own inbox, then on to the children. */
static __always_inline enum mlnet_verdict result_from_above(struct xdp_md *ctx, const struct pkt *p,
							    const struct mlnet_node *node,
							    const struct trailer_words *t, __u64 sum)
{
	int is_multicast = addr_is_multicast(p->l3, pkt_destination(p)), is_first;
	enum mlnet_verdict verdict = MLNET_V_DROP_RESULT_OLD;
	struct place place;

	if (!result_is_whole(p))
		return MLNET_V_DROP_MALFORMED;
	if (!place_find(p, node, &place))
		return MLNET_V_DROP_NO_POOL;
	bpf_spin_lock(&place.slot->lock);
	is_first = set_take_result(&place.slot->set[place.set_index], place.words, p, node, t, sum);
	bpf_spin_unlock(&place.slot->lock);
	if (node->flags & MLNET_NODE_DELIVER)
		verdict = result_deliver(p, node, t);
	/* A multicast result has reached the child hosts as well. */
	return is_first && node->n_fan && !is_multicast ? result_send_down(ctx, p, node) : verdict;
}

/* HELD, BUSY, RESEND or MISMATCH for the partial sum: to the ranks of this host; other hosts ask again by themselves. */
static __always_inline enum mlnet_verdict reply_from_above(const struct pkt *p, const struct mlnet_node *node,
							   const struct trailer_words *t)
{
	struct mlnet_notice notice = notice_of(p, t, MLNET_CHILD_ALL);
	struct mlnet_set *set;
	struct place place;

	if (!place_find(p, node, &place))
		return MLNET_V_DROP_NO_POOL;
	if (p->type == MLNET_T_RESEND) {
		bpf_spin_lock(&place.slot->lock);
		set = &place.slot->set[place.set_index];
		if (set_holds(set, p->epoch, p->seq) && set->state == MLNET_SET_COMPLETE)
			set->state = MLNET_SET_UNSENT;
		bpf_spin_unlock(&place.slot->lock);
	}
	for (__u32 local = 0; local < MLNET_CHILDREN_MAX; local++) {
		if (local >= node->n_local)
			break;
		notice_send(node, local, &notice);
	}
	return MLNET_V_NOTICE_DOWN;
}

#endif /* MLNET_AGGREGATE_INNER_BPF_H */
