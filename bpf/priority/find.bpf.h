/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether a packet on its way out is mlnet's, and where its headers are. Read by helper rather than through data
 * pointers: headers of what a socket sends may lie in fragments.
 */
#ifndef MLNET_PRIORITY_FIND_BPF_H
#define MLNET_PRIORITY_FIND_BPF_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <mlnet/config.h>
#include <mlnet/wire.h>

#define VLAN_TAGS_MAX 2

struct vlan_tag {
	__be16 tci;
	__be16 ether_type; /* of what follows */
};

/* What of a packet matters here. */
struct found {
	__u32 ip_at;
	__u16 job, epoch;
	__u8 tree, class_stream;
	__u8 tos;
	__u8 is_ipv6;
};

/* UDP and the first half of the mlnet header, as they lie in the frame. */
struct udp_and_mlnet {
	struct udphdr udp;
	__u8 version_type;
	__u8 op_wire;
	__u16 job, epoch;
	__u8 tree, class_stream;
	__u8 child, flags;
	__u16 words;
} MLNET_PACKED;

static __always_inline int is_vlan(__be16 ether_type)
{
	return ether_type == bpf_htons(ETH_P_8021Q) || ether_type == bpf_htons(ETH_P_8021AD);
}

/* Past tags that are in the frame. A tag that the NIC inserts is beside it and moves nothing. */
static __always_inline __be16 ip_find(struct __sk_buff *skb, __u32 *ip_at)
{
	__be16 ether_type = skb->protocol;
	struct vlan_tag tag;

	*ip_at = sizeof(struct ethhdr);
	for (int i = 0; i < VLAN_TAGS_MAX && is_vlan(ether_type); i++) {
		if (bpf_skb_load_bytes(skb, *ip_at, &tag, sizeof(tag)))
			return 0;
		ether_type = tag.ether_type;
		*ip_at += sizeof(tag);
	}
	return ether_type;
}

/* Where UDP begins; 0: this is no UDP datagram in one piece, or has options as we never send them. */
static __always_inline __u32 udp_find(struct __sk_buff *skb, struct found *f)
{
	__be16 ether_type = ip_find(skb, &f->ip_at);
	struct ipv6hdr ip6;
	struct iphdr ip;

	if (ether_type == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, f->ip_at, &ip6, sizeof(ip6)) || ip6.version != 6 ||
		    ip6.nexthdr != IPPROTO_UDP)
			return 0;
		f->is_ipv6 = 1;
		f->tos = ip6.priority << 4 | ip6.flow_lbl[0] >> 4;
		return f->ip_at + sizeof(ip6);
	}
	if (ether_type != bpf_htons(ETH_P_IP) || bpf_skb_load_bytes(skb, f->ip_at, &ip, sizeof(ip)) || ip.version != 4 ||
	    ip.ihl != 5 || ip.protocol != IPPROTO_UDP || ip.frag_off & bpf_htons(0x3fff))
		return 0;
	f->tos = ip.tos;
	return f->ip_at + sizeof(ip);
}

static __always_inline int header_is_valid(const struct udp_and_mlnet *h)
{
	__u8 type = h->version_type & 0xf;

	return h->version_type >> 4 == MLNET_PROTO_VERSION && type >= MLNET_T_CONTRIB && type <= MLNET_T_ANSWER &&
	       h->class_stream < MLNET_CLASSES_MAX * MLNET_STREAMS_MAX && h->words <= MLNET_WORDS_MAX &&
	       h->words % MLNET_BLOCK_WORDS == 0;
}

/* 1: an mlnet packet, or a batch of them of which this is the first. */
static __always_inline int find(struct __sk_buff *skb, __be16 port, struct found *f)
{
	__u32 udp_at = udp_find(skb, f);
	struct udp_and_mlnet h;

	if (!udp_at || bpf_skb_load_bytes(skb, udp_at, &h, sizeof(h)) || h.udp.dest != port || !header_is_valid(&h))
		return 0;
	f->job = h.job;
	f->epoch = h.epoch;
	f->tree = h.tree;
	f->class_stream = h.class_stream;
	return 1;
}

#endif /* MLNET_PRIORITY_FIND_BPF_H */
