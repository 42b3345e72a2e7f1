/* SPDX-License-Identifier: GPL-2.0-only */
/* The headers of a UDP frame that is sent again. */
#ifndef MLNET_LIB_REWRITE_BPF_H
#define MLNET_LIB_REWRITE_BPF_H

#include "jobs.bpf.h"
#include "parse.bpf.h"

/* Six bytes of a link address from the low end of a word, as ml_links keeps it. */
static __always_inline void mac_set(__u8 *to, __u64 mac)
{
	st48(to, mac);
}

static __always_inline __u64 mac_get(const __u8 *from)
{
	return ld48(from);
}

/*
 * Turns the frame round: from `src` on this host's NIC to `dst` at link address `dst_mac`, marked as the job's class is.
 * The UDP checksum is set to 0: XDP has no offload for it and the check word covers more.
 */
static __always_inline void frame_address(const struct pkt *p, const struct mlnet_node *node, __u64 src_mac,
					  __u64 dst_mac, struct addr src, struct addr dst, __u16 udp_bytes)
{
	struct ethhdr *eth = p->data;
	struct udphdr *udp = p->data + udp_at(p->l3);

	mac_set(eth->h_source, src_mac);
	mac_set(eth->h_dest, dst_mac);
	ip_write(p->l3, p->data, node_mark(node, p->class_stream)->tos, src, dst, udp_bytes);
	udp->source = node->port_be;
	udp->dest = node->port_be;
	udp->len = bpf_htons(udp_bytes);
	udp->check = 0;
}

#endif /* MLNET_LIB_REWRITE_BPF_H */
