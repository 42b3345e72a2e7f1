/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stage 6 of the packet path, at a root whose host has the job's server process: sums go into cells of the
 * server's own, its answer becomes the result. DESIGN.md ("The server of a root") says why this keeps the rules.
 */
#ifndef MLNET_AGGREGATE_SERVER_BPF_H
#define MLNET_AGGREGATE_SERVER_BPF_H

#include "deliver.bpf.h"
#include "emit.bpf.h"
#include "inner.bpf.h"
#include "place.bpf.h"

/* The sum that the packet carries. A copy that the cell already holds is as good. */
static __always_inline enum mlnet_verdict server_deliver(const struct pkt *p, const struct mlnet_node *node)
{
	struct mlnet_notice notice = {};
	enum mlnet_verdict verdict;
	struct trailer_words t;
	__u64 check;

	trailer_load(p->trailer, &t, &check);
	verdict = cell_deliver(p, node, node->server_inbox_id, &t);
	if (verdict != MLNET_V_DELIVERED && verdict != MLNET_V_DROP_RESULT_OLD)
		return verdict;
	if (asleep_take(node->server_inbox_id))
		ring_send(node->server_ring_id, &notice);
	return p->flags & MLNET_F_RETRY ? MLNET_V_SUM_TO_SERVER_LATE : MLNET_V_SUM_TO_SERVER;
}

/* A child still waits: the answer was lost, or there is none yet. */
static __always_inline void server_remind(const struct pkt *p, const struct mlnet_node *node)
{
	struct trailer_words none = {};
	struct mlnet_notice notice = notice_of(p, &none, MLNET_CHILD_ALL);

	ring_send(node->server_ring_id, &notice);
}

/* Tells the server that its answer was taken, so that it may forget what it was made of. */
static __always_inline void server_acknowledge(const struct pkt *p, const struct mlnet_node *node)
{
	struct mlnet_cell *cell = cell_find(p, node, node->server_inbox_id);

	if (cell)
		*(volatile __u64 *)&cell->bitmap = MLNET_STAMP(p->epoch, p->seq);
}

/* 0: the answer is now what the set holds for its children. Lock held. */
static __always_inline enum mlnet_verdict set_take_answer(struct mlnet_set *set, struct mlnet_words *words,
							  const struct pkt *p, const struct mlnet_node *node,
							  const struct trailer_words *t, __u64 sum)
{
	if (!set_holds(set, p->epoch, p->seq) || set->state == MLNET_SET_RESULT)
		return MLNET_V_DROP_ANSWER_OLD;
	if (!set_matches(set, p) || set->state != MLNET_SET_COMPLETE || !is_for_server(node, set->flags))
		return MLNET_V_DROP_ANSWER_EARLY;
	set_keep_result(set, words, p, node, t, sum);
	return 0;
}

/* The packet becomes what a sum that the root sends by itself would be. */
static __always_inline void answer_to_result(struct pkt *p, struct trailer_words *t, __u64 sum, __u64 contributed)
{
	__u64 h0 = h0_with_type(p->h0, MLNET_T_RESULT), h1 = h1_with(p->h1, MLNET_CHILD_ALL, p->flags);

	t->bitmap = contributed;
	header_store(p, h0, h1, p->h2);
	trailer_store(p->trailer, t, sum + check_mix(h0, h1, p->h2, t));
}

/* To the child hosts, as a sum of the root's own would go. */
static __always_inline enum mlnet_verdict answer_send(struct xdp_md *ctx, const struct pkt *p,
						      const struct mlnet_node *node)
{
	if (!(node->flags & MLNET_NODE_MULTICAST) && node->n_fan > 1)
		return result_fan(ctx, p, node) ? MLNET_V_ANSWER_SENT : MLNET_V_UNDECIDED;
	if (!result_address(p, node))
		return MLNET_V_UNDECIDED;
	return nic_send(1, node, MLNET_V_UNDECIDED, MLNET_V_ANSWER_SENT);
}

static __always_inline enum mlnet_verdict answer_take(struct xdp_md *ctx, struct pkt *p, const struct mlnet_node *node)
{
	enum mlnet_verdict verdict;
	struct trailer_words t;
	struct place place;
	__u64 contributed, sum;

	verdict = server_admit(p, node);
	if (verdict)
		return verdict;
	if (!result_is_whole(p))
		return MLNET_V_DROP_MALFORMED;
	if (!place_find(p, node, &place))
		return MLNET_V_DROP_NO_POOL;
	if (!check_verify(p, &t, &sum))
		return MLNET_V_DROP_CORRUPT;
	bpf_spin_lock(&place.slot->lock);
	verdict = set_take_answer(&place.slot->set[place.set_index], place.words, p, node, &t, sum);
	contributed = place.slot->set[place.set_index].contributed;
	bpf_spin_unlock(&place.slot->lock);
	if (verdict)
		return verdict;
	server_acknowledge(p, node);
	answer_to_result(p, &t, sum, contributed);
	verdict = MLNET_V_ANSWER_SENT;
	if (node->flags & MLNET_NODE_DELIVER)
		verdict = result_deliver(p, node, &t);
	return node->n_fan ? answer_send(ctx, p, node) : verdict;
}

/* A sum that ml_ingress has written over the packet that completed it, or an answer. */
static __always_inline enum mlnet_verdict server(struct xdp_md *ctx, struct pkt *p)
{
	enum mlnet_verdict verdict = pkt_parse(ctx, p);
	struct mlnet_node *node;

	if (verdict)
		return verdict;
	node = node_find(p->job, p->tree);
	if (!node)
		return MLNET_V_DROP_UNKNOWN_JOB;
	verdict = node_admit(p, node);
	if (verdict)
		return verdict;
	return p->type == MLNET_T_ANSWER ? answer_take(ctx, p, node) : server_deliver(p, node);
}

#endif /* MLNET_AGGREGATE_SERVER_BPF_H */
