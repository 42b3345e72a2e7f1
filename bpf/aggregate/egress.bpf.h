/* SPDX-License-Identifier: GPL-2.0-only */
/* Stage 7 of the packet path: each copy of a result gets the address of its host. */
#ifndef MLNET_AGGREGATE_EGRESS_BPF_H
#define MLNET_AGGREGATE_EGRESS_BPF_H

#include "admit.bpf.h"
#include "mac.bpf.h"
#include "maps.bpf.h"
#include "../lib/rewrite.bpf.h"

/* Destination and tag of a copy. 0: the job's key is gone. */
static __always_inline int copy_to(struct xdp_md *ctx, enum l3 l3, const struct mlnet_node *node, const struct mlnet_addr *to)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct mlnet_fan_meta *meta = (void *)(long)ctx->data_meta;

	if ((void *)(meta + 1) > data || !fits(data, udp_at(l3), data_end))
		return 0;
	ip_destination_set(l3, data, to);
	return !(node->flags & MLNET_NODE_MAC) || tag_set_of_copy(ctx, l3, &meta->nh);
}

/*
 * Copy k of a result becomes the packet of the k-th host. The copies of one result pass here
 * one after the other on the CPU that made them, so a count per CPU is the copy index. Frames without
 * our mark pass unchanged: the NIC's bulk queue keeps the first frame's egress program until it is
 * flushed, so this program also meets frames that were redirected before.
 */
static __always_inline int egress(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct mlnet_fan_meta *meta = (void *)(long)ctx->data_meta;
	struct ethhdr *eth = data;
	struct mlnet_fan_state *state;
	struct mlnet_node *node;
	struct mlnet_link *link;
	__u32 zero = 0, child, key;
	int is_whole;

	if ((void *)(meta + 1) > data || meta->magic != MLNET_FAN_MAGIC || data + udp_at(L3_IPV6) > data_end)
		return XDP_PASS;
	state = bpf_map_lookup_elem(&ml_fan_state, &zero);
	node = node_find(meta->job, meta->tree);
	if (!state || !node)
		return XDP_DROP;
	if (state->current_id == meta->broadcast_id) {
		state->copy++;
	} else {
		state->current_id = meta->broadcast_id;
		state->copy = 0;
	}
	if (state->copy >= node->n_fan)
		return XDP_DROP;
	child = masked(node->fan_child[masked(state->copy, MLNET_CHILDREN_MAX - 1)], MLNET_CHILDREN_MAX - 1);
	key = node->link_base + child;
	link = bpf_map_lookup_elem(&ml_links, &key);
	if (!link)
		return XDP_DROP;
	mac_set(eth->h_dest, link->mac);
	is_whole = eth->h_proto == bpf_htons(ETH_P_IPV6) ? copy_to(ctx, L3_IPV6, node, &node->child_addr[child])
							 : copy_to(ctx, L3_IPV4, node, &node->child_addr[child]);
	if (!is_whole)
		return XDP_DROP;
	bpf_xdp_adjust_meta(ctx, sizeof(*meta)); /* the receiver has no use for it */
	return XDP_PASS;
}

#endif /* MLNET_AGGREGATE_EGRESS_BPF_H */
