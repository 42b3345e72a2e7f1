/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stage 5 of the packet path: what leaves. The packet that completes a sum becomes the result; other
 * answers are its header and trailer, sent back to where it came from. No new packet is ever built.
 * Writing happens under the slot's lock, addressing and sending after it.
 */
#ifndef MLNET_AGGREGATE_EMIT_BPF_H
#define MLNET_AGGREGATE_EMIT_BPF_H

#include "accumulate.bpf.h"
#include "admit.bpf.h"
#include "maps.bpf.h"
#include "../lib/rewrite.bpf.h"

/* A header-only answer to the sender. */
struct reply {
	__u64 bitmap;
	__u32 fingerprint;
	__u8 type;
};

static __always_inline __u64 h0_with_type(__u64 h0, __u8 type)
{
	return (h0 & ~0xfULL) | type;
}

static __always_inline __u64 h1_with(__u64 h1, __u8 child, __u8 flags)
{
	return (h1 & ~0xffffULL) | child | ((__u64)flags << 8);
}

static __always_inline void header_store(const struct pkt *p, __u64 h0, __u64 h1, __u64 h2)
{
	void *header = p->data + header_at(p->l3);

	st64(header, h0);
	st64(header + 8, h1);
	st48(header + 16, h2);
}

/*
 * What `set` holds over this packet's payload, as the packet that `h0` and `h1` make it; `t` is its trailer.
 * REQUIRES: lock held, the packet has room (pkt_has_room).
 */
static __always_inline void sum_write(struct pkt *p, struct mlnet_set *set, struct mlnet_words *words,
				      struct trailer_words *t, __u64 h0, __u64 h1)
{
	/* No other operation's S is the sum of the contributions' S. */
	if (p->op != MLNET_OP_ADD64 && p->op != MLNET_OP_ADD32 && p->blocks && set->has_words)
		set->check = words_sum(p, words);
	t->weight = set->weight;
	t->e0 = ld64(set->exps);
	t->e1 = ld64(set->exps + 8);
	t->e2 = ld48(set->exps + 16);
	if (!set->has_words && p->blocks) /* nobody had data: the sum is zero, and so is its S */
		words_clear(p, words);
	words_write(p, words);
	header_store(p, h0, h1, p->h2);
	trailer_store(p->trailer, t, set->check + check_mix(h0, h1, p->h2, t));
}

/* The finished sum. */
static __always_inline void result_write(struct pkt *p, struct mlnet_set *set, struct mlnet_words *words,
					 struct trailer_words *t)
{
	t->bitmap = set->contributed;
	p->flags = set->flags;
	sum_write(p, set, words, t, h0_with_type(p->h0, MLNET_T_RESULT), h1_with(p->h1, MLNET_CHILD_ALL, set->flags));
}

/* The partial sum of an inner node, as its contribution to the node above; the sum that a server gets looks the same. */
static __always_inline void partial_write(struct pkt *p, struct mlnet_set *set, struct mlnet_words *words,
					  const struct mlnet_node *node, struct trailer_words *t, __u8 flags)
{
	flags |= set->flags;

	if (p->words && !set->has_words)
		flags |= MLNET_F_NO_DATA;
	if (p->words && !p->blocks)
		flags |= MLNET_F_NO_PAYLOAD;
	t->bitmap = 0;
	sum_write(p, set, words, t, h0_with_type(p->h0, MLNET_T_CONTRIB), h1_with(p->h1, node->up_child, flags));
}

static __always_inline int is_sum_complete(enum mlnet_verdict verdict)
{
	return verdict == MLNET_V_SUM_COMPLETE_TX || verdict == MLNET_V_SUM_COMPLETE_UNSENT || verdict == MLNET_V_PARTIAL_TX;
}

/* Whether the packet's contribution is in the sum now. */
static __always_inline int is_taken(enum mlnet_verdict verdict)
{
	return (verdict >= MLNET_V_SUM_FIRST && verdict <= MLNET_V_SUM_COMPLETE_UNSENT) || verdict == MLNET_V_PARTIAL_TX ||
	       verdict == MLNET_V_SUM_TO_SERVER;
}

static __always_inline int pkt_has_room(const struct pkt *p)
{
	return p->blocks || !p->words;
}

/* A partial sum without data fits any packet. */
static __always_inline int pkt_fits_partial(const struct pkt *p, const struct mlnet_set *set)
{
	return pkt_has_room(p) || !set->has_words;
}

static __always_inline void link_learn(struct mlnet_link *link, const struct pkt *p)
{
	__u64 mac = mac_get(((struct ethhdr *)p->data)->h_source);

	if (link->mac != mac)
		link->mac = mac;
}

/* Back to the sender, without payload. */
static __always_inline enum mlnet_verdict reply_send(struct xdp_md *ctx, const struct pkt *p,
						     const struct mlnet_node *node, const struct reply *r,
						     enum mlnet_verdict verdict)
{
	struct trailer_words t = { .bitmap = r->bitmap };
	struct ethhdr *eth = p->data;
	__u64 h0 = h0_with_type(p->h0, r->type);
	__u64 h1 = h1_with(p->h1, p->child, MLNET_F_NO_PAYLOAD);
	__u64 h2 = (p->h2 & 0xffff) | ((__u64)r->fingerprint << 16);
	int shrink = (int)(payload_at(p->l3) + TRAILER_BYTES + p->mac_bytes) - (int)p->frame_bytes;

	header_store(p, h0, h1, h2);
	trailer_store(pkt_payload(p), &t, check_mix(h0, h1, h2, &t));
	frame_address(p, node, mac_get(eth->h_dest), mac_get(eth->h_source), pkt_destination(p), pkt_source(p),
		      sizeof(struct udphdr) + sizeof(struct mlnet_hdr) + TRAILER_BYTES + p->mac_bytes);
	if (shrink < 0)
		bpf_xdp_adjust_tail(ctx, shrink);
	return verdict;
}

/* The result to the child that asked again. */
static __always_inline enum mlnet_verdict result_send_one(const struct pkt *p, const struct mlnet_node *node)
{
	struct ethhdr *eth = p->data;

	frame_address(p, node, mac_get(eth->h_dest), mac_get(eth->h_source), pkt_destination(p), pkt_source(p),
		      pkt_udp_bytes(p));
	return MLNET_V_RESEND_RESULT;
}

/* Link address of the NIC that the packet leaves by. */
static __always_inline __u64 nic_mac(const struct pkt *p, const struct mlnet_node *node)
{
	return mac_get(pkt_is_local(p, node) ? node->nic_mac : ((struct ethhdr *)p->data)->h_dest);
}

/*
 * How an addressed frame leaves: what came in by the NIC turns round there, what came by the veth is redirected
 * to it. UNDECIDED (0): it cannot.
 */
static __always_inline enum mlnet_verdict nic_send(int is_local, const struct mlnet_node *node,
						   enum mlnet_verdict turned, enum mlnet_verdict redirected)
{
	__u32 fan_id = node->fan_id;
	void *fan;

	if (!is_local)
		return turned;
	fan = bpf_map_lookup_elem(&ml_fans, &fan_id);
	if (!fan)
		return MLNET_V_UNDECIDED;
	bpf_redirect_map(fan, 0, 0);
	return redirected;
}

/*
 * One copy per host: the devmap makes the clones, ml_egress addresses each. 0: it cannot, and the frame is
 * addressed to its sender at least; the others ask again.
 */
static __always_inline int result_fan(struct xdp_md *ctx, const struct pkt *p, const struct mlnet_node *node)
{
	__u32 zero = 0, fan_id = node->fan_id;
	void *fan = bpf_map_lookup_elem(&ml_fans, &fan_id);
	struct mlnet_fan_state *state = bpf_map_lookup_elem(&ml_fan_state, &zero);
	struct mlnet_fan_meta *meta;
	void *data;

	frame_address(p, node, nic_mac(p, node), mac_get(((struct ethhdr *)p->data)->h_source),
		      addr_load(p->l3, &node->addr), pkt_source(p), pkt_udp_bytes(p));
	if (!fan || !state || bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta)))
		return 0;
	data = (void *)(long)ctx->data;
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) > data)
		return 0;
	meta->magic = MLNET_FAN_MAGIC;
	meta->job = p->job;
	meta->tree = p->tree;
	meta->pad = 0;
	meta->broadcast_id = ++state->next_id;
	bpf_redirect_map(fan, 0, BPF_F_BROADCAST);
	return 1;
}

/* Addresses the frame to a single destination: the group, or the only other host. 0: its address is not known. */
static __always_inline int result_address(const struct pkt *p, const struct mlnet_node *node)
{
	__u32 child = masked(node->fan_child[0], MLNET_CHILDREN_MAX - 1), key = node->link_base + child;
	struct addr own = addr_load(p->l3, &node->addr);
	struct mlnet_link *link;

	if (node->flags & MLNET_NODE_MULTICAST) {
		frame_address(p, node, nic_mac(p, node), mac_get(node->group_mac), own, addr_load(p->l3, &node->group),
			      pkt_udp_bytes(p));
		return 1;
	}
	link = bpf_map_lookup_elem(&ml_links, &key);
	if (!link)
		return 0;
	frame_address(p, node, nic_mac(p, node), link->mac, own, addr_load(p->l3, &node->child_addr[child]),
		      pkt_udp_bytes(p));
	return 1;
}

/* The finished sum to all other hosts: by multicast, straight to a single one, or one copy per host. */
static __always_inline enum mlnet_verdict result_send_all(struct xdp_md *ctx, const struct pkt *p,
							  const struct mlnet_node *node, int is_late)
{
	enum mlnet_verdict fanned = is_late ? MLNET_V_SUM_SENT_LATE_FAN : MLNET_V_SUM_COMPLETE_FAN;
	int is_local;

	if (!node->n_fan)
		return is_late ? MLNET_V_SUM_SENT_LATE_LOCAL : MLNET_V_SUM_COMPLETE_LOCAL;
	if (!(node->flags & MLNET_NODE_MULTICAST) && node->n_fan > 1)
		return result_fan(ctx, p, node) ? fanned : MLNET_V_RESEND_RESULT;
	is_local = pkt_is_local(p, node);
	if (!result_address(p, node))
		return MLNET_V_UNDECIDED;
	return nic_send(is_local, node, is_late ? MLNET_V_SUM_SENT_LATE : MLNET_V_SUM_COMPLETE_TX, fanned);
}

/* A result from above to the child hosts. It came by the NIC. */
static __always_inline enum mlnet_verdict result_send_down(struct xdp_md *ctx, const struct pkt *p,
							   const struct mlnet_node *node)
{
	if (node->n_fan > 1)
		return result_fan(ctx, p, node) ? MLNET_V_RESULT_DOWN_FAN : MLNET_V_UNDECIDED;
	return result_address(p, node) ? MLNET_V_RESULT_DOWN_TX : MLNET_V_UNDECIDED;
}

/* The partial sum to the node above. */
static __always_inline enum mlnet_verdict partial_send(const struct pkt *p, const struct mlnet_node *node, int is_again)
{
	int is_local = pkt_is_local(p, node);

	frame_address(p, node, nic_mac(p, node), mac_get(node->up_mac), addr_load(p->l3, &node->addr),
		      addr_load(p->l3, &node->up), pkt_udp_bytes(p));
	return nic_send(is_local, node, is_again ? MLNET_V_PARTIAL_AGAIN_TX : MLNET_V_PARTIAL_TX,
			is_again ? MLNET_V_PARTIAL_AGAIN_REDIRECT : MLNET_V_PARTIAL_REDIRECT);
}

#endif /* MLNET_AGGREGATE_EMIT_BPF_H */
