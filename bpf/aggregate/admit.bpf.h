/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stage 2 of the packet path: does this packet belong to a job of this host, and is its sender who it
 * says it is. A packet that is not admitted changes nothing but a counter.
 */
#ifndef MLNET_AGGREGATE_ADMIT_BPF_H
#define MLNET_AGGREGATE_ADMIT_BPF_H

#include "maps.bpf.h"
#include "../lib/parse.bpf.h"

/* What packets of the job have behind their trailer. */
static __always_inline __u32 node_mac_bytes(const struct mlnet_node *node)
{
	return masked(node->flags / (MLNET_NODE_MAC / MLNET_MAC_BYTES), MLNET_MAC_BYTES);
}

/* Job and epoch; common to both directions. */
static __always_inline enum mlnet_verdict node_admit(struct pkt *p, const struct mlnet_node *node)
{
	if (!node->flags)
		return MLNET_V_DROP_NO_POOL;
	p->node_stats_id = node->stats_id;
	if (!!(node->flags & MLNET_NODE_IPV6) != (p->l3 == L3_IPV6))
		return MLNET_V_DROP_NOT_MEMBER;
	if (p->epoch != node->epoch)
		return MLNET_V_DROP_EPOCH;
	if (p->mac_bytes != node_mac_bytes(node))
		return p->mac_bytes ? MLNET_V_DROP_MALFORMED : MLNET_V_DROP_MAC;
	if (p->class_stream >= MLNET_POOLS_MAX ||
	    !node->pools[masked(p->class_stream, MLNET_POOLS_MAX - 1)].is_open)
		return MLNET_V_DROP_NO_POOL;
	return 0;
}

static __always_inline int pkt_is_from(const struct pkt *p, const struct mlnet_addr *addr)
{
	return addr_same(pkt_source(p), addr_load(p->l3, addr));
}

static __always_inline int pkt_is_to(const struct pkt *p, const struct mlnet_addr *addr)
{
	return addr_same(pkt_destination(p), addr_load(p->l3, addr));
}

/* Whether it came from a rank of this host, by the veth that leads to its own aggregator. */
static __always_inline int pkt_is_local(const struct pkt *p, const struct mlnet_node *node)
{
	struct addr local = addr_load(p->l3, &node->local);

	return (local.high | local.low) && addr_same(pkt_destination(p), local);
}

/* Upwards: a child of the job, from the address that the job table gives it, to this aggregator. */
static __always_inline enum mlnet_verdict child_admit(const struct pkt *p, const struct mlnet_node *node)
{
	if (!(node->flags & MLNET_NODE_AGGREGATE) || (!pkt_is_to(p, &node->addr) && !pkt_is_local(p, node)))
		return MLNET_V_DROP_UNKNOWN_JOB;
	if (p->child >= MLNET_CHILDREN_MAX || !(node->members & (1ULL << (p->child & 63))) ||
	    !pkt_is_from(p, &node->child_addr[masked(p->child, MLNET_CHILDREN_MAX - 1)]))
		return MLNET_V_DROP_NOT_MEMBER;
	return 0;
}

/* Whether a sum of such flags ends at the server of this host instead of leaving as the result. */
static __always_inline __u32 is_for_server(const struct mlnet_node *node, __u8 flags)
{
	/* Without a branch: the verifier would walk all that follows once for each way to be false. */
	return masked(node->flags & (flags / (MLNET_F_SERVER / MLNET_NODE_SERVER)), MLNET_NODE_SERVER);
}

/* From the job's server, which runs on this host and sends by the veth. */
static __always_inline enum mlnet_verdict server_admit(const struct pkt *p, const struct mlnet_node *node)
{
	int is_servers = node->flags & MLNET_NODE_SERVER && pkt_is_local(p, node) && pkt_is_from(p, &node->addr);

	return is_servers && p->flags & MLNET_F_SERVER ? 0 : MLNET_V_DROP_NOT_PARENT;
}

/* Downwards: from the node above the ranks of this host, from the one above this node, or by multicast
 * from the root, wherever that is: results, and the probes of whether they arrive. */
static __always_inline enum mlnet_verdict parent_admit(const struct pkt *p, const struct mlnet_node *node)
{
	if (!(node->flags & (MLNET_NODE_DELIVER | MLNET_NODE_INNER)))
		return MLNET_V_DROP_UNKNOWN_JOB;
	if (pkt_is_from(p, &node->parent) || (node->flags & MLNET_NODE_INNER && pkt_is_from(p, &node->up)))
		return 0;
	return (p->type == MLNET_T_RESULT || p->type == MLNET_T_PING) && pkt_is_from(p, &node->root) ?
		       0 :
		       MLNET_V_DROP_NOT_PARENT;
}

/* Whether it comes from the node above this one, and not from this one to the ranks of its host. */
static __always_inline int pkt_is_from_above(const struct pkt *p, const struct mlnet_node *node)
{
	return (node->flags & MLNET_NODE_INNER) && !pkt_is_from(p, &node->local);
}

#endif /* MLNET_AGGREGATE_ADMIT_BPF_H */
