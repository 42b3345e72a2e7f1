/* SPDX-License-Identifier: GPL-2.0-only */
/* A packet's marks: DSCP in the IP header, the priority of the skb, PCP of a tag. ECN, DEI and VLAN id stay. */
#ifndef MLNET_PRIORITY_MARK_BPF_H
#define MLNET_PRIORITY_MARK_BPF_H

#include "find.bpf.h"
#include "../lib/l3.bpf.h"

#define PCP_SHIFT 13
#define PCP_MASK 0xe000

static __always_inline void dscp_set(struct __sk_buff *skb, const struct found *f, __u8 tos)
{
	__be16 before, after;

	if (bpf_skb_load_bytes(skb, f->ip_at, &before, sizeof(before)))
		return;
	if (f->is_ipv6) {
		after = ipv6_half_with_tos(before, tos);
	} else {
		after = (before & bpf_htons(0xff00 | ECN_BITS)) | bpf_htons(tos);
		bpf_l3_csum_replace(skb, f->ip_at + __builtin_offsetof(struct iphdr, check), before, after, sizeof(after));
	}
	bpf_skb_store_bytes(skb, f->ip_at, &after, sizeof(after), 0);
}

static __always_inline __u16 tci_with(__u16 tci, __u8 pcp)
{
	return (tci & ~PCP_MASK) | (__u16)pcp << PCP_SHIFT;
}

/* Of the outermost tag, which is what the next switch reads: beside the frame, or else in it. */
static __always_inline void pcp_set(struct __sk_buff *skb, __u8 pcp)
{
	struct vlan_tag tag;
	__u16 before, after;

	if (skb->vlan_present) {
		before = skb->vlan_tci;
		after = tci_with(before, pcp);
		if (after != before && !bpf_skb_vlan_pop(skb))
			bpf_skb_vlan_push(skb, skb->vlan_proto, after);
		return;
	}
	if (!is_vlan(skb->protocol) || bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &tag, sizeof(tag)))
		return;
	before = bpf_ntohs(tag.tci);
	after = tci_with(before, pcp);
	if (after == before)
		return;
	tag.tci = bpf_htons(after);
	bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &tag.tci, sizeof(tag.tci), 0);
}

#endif /* MLNET_PRIORITY_MARK_BPF_H */
