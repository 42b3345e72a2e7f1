/* SPDX-License-Identifier: GPL-2.0-only */
/* Addresses, lengths and the IP checksum of an IPv4/UDP frame that is sent again. No mlnet policy. */
#ifndef MLNET_LIB_REWRITE_BPF_H
#define MLNET_LIB_REWRITE_BPF_H

#include "parse.bpf.h"

static __always_inline void ip_checksum_set(struct iphdr *ip)
{
	const __u16 *half = (const __u16 *)ip;
	__u32 sum = 0;

	ip->check = 0;
#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += half[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~sum;
}

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
 * Turns the frame round: from `src_be` on this host's NIC to `dst_be` at link address `dst_mac`.
 * The UDP checksum is set to 0: XDP has no offload for it and the check word covers more.
 */
static __always_inline void frame_address(void *data, __u64 src_mac, __u64 dst_mac, __u32 src_be,
					  __u32 dst_be, __u16 port_be, __u16 udp_bytes)
{
	struct ethhdr *eth = data;
	struct iphdr *ip = data + sizeof(*eth);
	struct udphdr *udp = (void *)(ip + 1);

	mac_set(eth->h_source, src_mac);
	mac_set(eth->h_dest, dst_mac);
	ip->saddr = src_be;
	ip->daddr = dst_be;
	ip->ttl = 64;
	ip->tot_len = bpf_htons(udp_bytes + sizeof(*ip));
	ip_checksum_set(ip);
	udp->source = port_be;
	udp->dest = port_be;
	udp->len = bpf_htons(udp_bytes);
	udp->check = 0;
}

#endif /* MLNET_LIB_REWRITE_BPF_H */
