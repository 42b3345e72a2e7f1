/* SPDX-License-Identifier: GPL-2.0-only */
/* What mlnetd must hear of: collectives that differ, and PINGs by which it learns that a path works. */
#ifndef MLNET_AGGREGATE_EVENT_BPF_H
#define MLNET_AGGREGATE_EVENT_BPF_H

#include "check.bpf.h"
#include "emit.bpf.h"
#include "maps.bpf.h"

static __always_inline int event_send(const struct pkt *p, __u32 kind, __u64 a, __u64 b)
{
	struct mlnet_event *event = bpf_ringbuf_reserve(&ml_events, sizeof(*event), 0);

	if (!event)
		return -1;
	event->event = kind;
	event->job = p->job;
	event->epoch = p->epoch;
	event->tree = p->tree;
	event->class_stream = p->class_stream;
	event->child = p->child;
	event->type = p->type;
	event->seq = p->seq;
	event->a = a;
	event->b = b;
	event->time_ns = bpf_ktime_get_ns();
	bpf_ringbuf_submit(event, 0);
	return 0;
}

static __always_inline void event_mismatch(const struct pkt *p, __u32 slot_fingerprint)
{
	event_send(p, MLNET_EV_MISMATCH, slot_fingerprint, p->fingerprint);
}

/* For a timeline that somebody is looking at; one that the ring has no room for is missing there. */
static __always_inline void event_summed(const struct pkt *p, __u64 lag_ns)
{
	event_send(p, MLNET_EV_SUMMED, lag_ns, 0);
}

/*
 * Pools of rarely used classes get their words at the first packet, which is lost and comes again. Nothing can have
 * been claimed without words, so it does not matter when the daemon makes them.
 */
static __always_inline enum mlnet_verdict pool_missing(const struct pkt *p, const struct mlnet_node *node)
{
	const struct mlnet_pool *pool = &node->pools[masked(p->class_stream, MLNET_POOLS_MAX - 1)];

	if (pool->is_open && pool->words_id)
		event_send(p, MLNET_EV_POOL_WANTED, pool->words_id, 0);
	return MLNET_V_DROP_NO_POOL;
}

/* Header words with another seq. */
static __always_inline __u64 h1_with_seq(__u64 h1, __u64 seq)
{
	return (h1 & 0xffffffff) | seq << 32;
}

static __always_inline __u64 h2_with_seq(__u64 h2, __u64 seq)
{
	return (h2 & ~0xffffULL) | (seq >> 32 & 0xffff);
}

/* A PING or PONG on its way through this node: as another child's, with another time, and `way` to where it came from. */
static __always_inline void ping_rewrite(const struct pkt *p, __u8 child, __u64 seq, __u64 way)
{
	__u64 h1 = h1_with_seq(h1_with(p->h1, child, MLNET_F_NO_PAYLOAD), seq), h2 = h2_with_seq(p->h2, seq);
	struct trailer_words t = { .bitmap = way };

	header_store(p, p->h0, h1, h2);
	trailer_store(p->trailer, &t, check_mix(p->h0, h1, h2, &t));
}

/* As the node's own, by its own clock, to the one above: only the root answers, and its answer comes back the same way. */
static __always_inline enum mlnet_verdict ping_up(const struct pkt *p, const struct mlnet_node *node, __u64 way)
{
	int is_local = pkt_is_local(p, node);

	ping_rewrite(p, node->up_child, MLNET_PING_SEQ(bpf_ktime_get_ns()), MLNET_WAY_PUSH(way, p->child));
	frame_address(p, node, nic_mac(p, node), mac_get(node->up_mac), addr_load(p->l3, &node->addr),
		      addr_load(p->l3, &node->up), pkt_udp_bytes(p));
	return nic_send(is_local, node, MLNET_V_PING_UP_TX, MLNET_V_PING_UP_REDIRECT);
}

/*
 * Whether a PING was not heard before. Its tag alone would not say so, and whoever repeats those of a child that is dead
 * would keep it alive.
 */
static __always_inline int ping_is_new(const struct pkt *p, const struct mlnet_node *node, struct mlnet_link *link)
{
	__u64 last = *(volatile __u64 *)&link->ping;

	if (!(node->flags & MLNET_NODE_MAC)) {
		link->ping = p->seq;
		return 1;
	}
	return p->seq > last && __sync_val_compare_and_swap(&link->ping, last, p->seq) == last;
}

/* The same of an answer, which has the seq that a host gave its PING: the time there. */
static __always_inline int pong_is_new(const struct pkt *p, const struct mlnet_node *node)
{
	if (!(node->flags & MLNET_NODE_MAC))
		return 1;
	return ((MLNET_PING_SEQ(bpf_ktime_get_ns()) - p->seq) & MLNET_SEQ_MASK) < MLNET_PONG_AGE_MAX;
}

/* A child lives. Known at each node up to the root, whose answer is counted on the way back. */
static __always_inline enum mlnet_verdict ping_of_child(struct xdp_md *ctx, const struct pkt *p, const struct mlnet_node *node,
							__u64 way)
{
	struct reply reply = { .type = MLNET_T_PONG, .fingerprint = p->fingerprint, .bitmap = way };
	__u32 link_key = node->link_base + (p->child & (MLNET_CHILDREN_MAX - 1));
	struct mlnet_link *link = bpf_map_lookup_elem(&ml_links, &link_key);

	if (!link || p->blocks)
		return MLNET_V_DROP_MALFORMED;
	if (!ping_is_new(p, node, link))
		return MLNET_V_DROP_PING_OLD;
	link_learn(link, p);
	link->last_ns = bpf_ktime_get_ns();
	return node->flags & MLNET_NODE_INNER ? ping_up(p, node, way) : reply_send(ctx, p, node, &reply, MLNET_V_PONG);
}

/*
 * An answer from above to a PING that this node passed on: to the child on whose behalf it was, which is its only sign that
 * the root lives while nothing is summed. Its PING's time is the latest one heard.
 */
static __always_inline enum mlnet_verdict pong_down(const struct pkt *p, const struct mlnet_node *node, __u64 way)
{
	__u32 child = masked(way, MLNET_CHILDREN_MAX - 1), link_key = node->link_base + child;
	struct mlnet_link *link = bpf_map_lookup_elem(&ml_links, &link_key);

	if ((__u8)way != child || !link || !link->mac || !(node->members >> child & 1) || node->child_local[child])
		return MLNET_V_PONG_SEEN;
	ping_rewrite(p, child, link->ping, MLNET_WAY_POP(way));
	frame_address(p, node, mac_get(((struct ethhdr *)p->data)->h_dest), link->mac, addr_load(p->l3, &node->addr),
		      addr_load(p->l3, &node->child_addr[child]), pkt_udp_bytes(p));
	return MLNET_V_PONG_DOWN_TX;
}

static __always_inline enum mlnet_verdict pong(const struct pkt *p, const struct mlnet_node *node, __u64 way)
{
	if (p->blocks)
		return MLNET_V_DROP_MALFORMED;
	if (!pong_is_new(p, node))
		return MLNET_V_DROP_PING_OLD;
	return pkt_is_from_above(p, node) ? pong_down(p, node, way) : MLNET_V_PONG_SEEN;
}

/*
 * A child's PING goes up, or is answered. A PONG is counted, and goes down to the child that it is for: the daemon looks at the
 * counter, so that a job's pings do not wake it. Neither has a payload. A PING by multicast is a root's probe and goes to the daemon.
 */
static __always_inline enum mlnet_verdict ping(struct xdp_md *ctx, const struct pkt *p,
					       const struct mlnet_node *node)
{
	struct trailer_words t;
	__u64 sum;
	int is_of_child = p->type == MLNET_T_PING && !addr_is_multicast(p->l3, pkt_destination(p));

	if (is_of_child ? child_admit(p, node) : parent_admit(p, node))
		return MLNET_V_DROP_NOT_MEMBER;
	if (!check_verify(p, &t, &sum))
		return MLNET_V_DROP_CORRUPT;
	if (is_of_child)
		return ping_of_child(ctx, p, node, t.bitmap);
	if (p->type == MLNET_T_PONG)
		return pong(p, node, t.bitmap);
	return event_send(p, MLNET_EV_PING_SEEN, p->seq, 0) ? MLNET_V_NOTICE_LOST : MLNET_V_PING_SEEN;
}

#endif /* MLNET_AGGREGATE_EVENT_BPF_H */
