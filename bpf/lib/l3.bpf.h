/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All that differs between IPv4 and IPv6. Which of the two a program is for is a constant in it: the packet path
 * is compiled once for each, and no branch on `enum l3` is left.
 */
#ifndef MLNET_LIB_L3_BPF_H
#define MLNET_LIB_L3_BPF_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <mlnet/config.h>
#include <mlnet/job.h>

#include "bytes.bpf.h"

extern const volatile struct mlnet_cfg ml_cfg;

enum l3 { L3_IPV4, L3_IPV6 };

/* An address in two words, to be compared; IPv4 has only the low one. */
struct addr {
	__u64 high, low;
};

static __always_inline __u32 udp_at(enum l3 l3)
{
	return sizeof(struct ethhdr) + (l3 == L3_IPV6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
}

static __always_inline __u32 header_at(enum l3 l3)
{
	return udp_at(l3) + sizeof(struct udphdr);
}

static __always_inline __u32 payload_at(enum l3 l3)
{
	return header_at(l3) + sizeof(struct mlnet_hdr);
}

static __always_inline struct addr addr_load(enum l3 l3, const struct mlnet_addr *from)
{
	if (l3 == L3_IPV6)
		return (struct addr){ ld64(from->be), ld64(from->be + 2) };
	return (struct addr){ 0, from->be[3] };
}

static __always_inline int addr_same(struct addr a, struct addr b)
{
	return a.high == b.high && a.low == b.low;
}

static __always_inline int addr_is_multicast(enum l3 l3, struct addr a)
{
	return l3 == L3_IPV6 ? (a.high & 0xff) == 0xff : (a.low & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000);
}

static __always_inline struct addr ip_source(enum l3 l3, const void *data)
{
	const struct iphdr *ip = data + sizeof(struct ethhdr);
	const struct ipv6hdr *ip6 = data + sizeof(struct ethhdr);

	if (l3 == L3_IPV6)
		return (struct addr){ ld64(&ip6->saddr), ld64((void *)&ip6->saddr + 8) };
	return (struct addr){ 0, ip->saddr };
}

static __always_inline struct addr ip_destination(enum l3 l3, const void *data)
{
	const struct iphdr *ip = data + sizeof(struct ethhdr);
	const struct ipv6hdr *ip6 = data + sizeof(struct ethhdr);

	if (l3 == L3_IPV6)
		return (struct addr){ ld64(&ip6->daddr), ld64((void *)&ip6->daddr + 8) };
	return (struct addr){ 0, ip->daddr };
}

static __always_inline int frame_is_ipv6(const struct xdp_md *ctx)
{
	const void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	const struct ethhdr *eth = data;

	return (void *)(eth + 1) <= data_end && eth->h_proto == bpf_htons(ETH_P_IPV6);
}

/*
 * 0: a UDP datagram to our port. With IPv6 only without extension headers: we send none, so what has some is
 * left to the kernel, fragments too.
 */
static __always_inline enum mlnet_verdict ip_parse(enum l3 l3, void *data, void *data_end)
{
	struct ethhdr *eth = data;
	struct iphdr *ip = data + sizeof(*eth);
	struct ipv6hdr *ip6 = data + sizeof(*eth);
	struct udphdr *udp = data + udp_at(l3);

	if ((void *)(udp + 1) > data_end)
		return MLNET_V_PASS_NOT_OURS;
	if (l3 == L3_IPV6)
		return eth->h_proto == bpf_htons(ETH_P_IPV6) && ip6->version == 6 && ip6->nexthdr == IPPROTO_UDP &&
				       udp->dest == ml_cfg.port_be
			       ? 0
			       : MLNET_V_PASS_NOT_OURS;
	if (eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 || ip->version != 4 ||
	    ip->protocol != IPPROTO_UDP)
		return MLNET_V_PASS_NOT_OURS;
	if (ip->frag_off & bpf_htons(0x1fff)) /* a later fragment has no UDP header to look at */
		return MLNET_V_PASS_NOT_OURS;
	if (udp->dest != ml_cfg.port_be)
		return MLNET_V_PASS_NOT_OURS;
	return ip->frag_off & bpf_htons(0x2000) ? MLNET_V_DROP_FRAGMENT : 0;
}

static __always_inline __u32 udp_bytes(enum l3 l3, const void *data)
{
	const struct udphdr *udp = data + udp_at(l3);

	return bpf_ntohs(udp->len);
}

/* Whether the IP and the UDP header both say that the datagram has `udp_bytes`. */
static __always_inline int ip_has_bytes(enum l3 l3, const void *data, __u32 udp_bytes)
{
	const struct iphdr *ip = data + sizeof(struct ethhdr);
	const struct ipv6hdr *ip6 = data + sizeof(struct ethhdr);
	const struct udphdr *udp = data + udp_at(l3);

	if (udp->len != bpf_htons(udp_bytes))
		return 0;
	return l3 == L3_IPV6 ? ip6->payload_len == bpf_htons(udp_bytes)
			     : ip->tot_len == bpf_htons(udp_bytes + sizeof(*ip));
}

static __always_inline void ipv4_checksum_set(struct iphdr *ip)
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

#define ECN_BITS 0x3

/* `flag` where a queue has marked the datagram (both bits of ECN), else 0: without a branch, of which the verifier walks both ways. */
static __always_inline __u8 ip_congestion(enum l3 l3, const void *data, __u8 flag)
{
	const __u8 *ip = data + sizeof(struct ethhdr);
	__u8 ecn = l3 == L3_IPV6 ? ip[1] >> 4 : ip[1]; /* in IPv6 the class lies across two bytes */

	return (ecn & ecn >> 1 & 1) * flag;
}

/* The two bytes in which IPv6 has its traffic class: version 4, class 8, flow label 4. */
static __always_inline __u16 ipv6_half_with_tos(__u16 half, __u8 tos)
{
	return (half & bpf_htons(0xf00f | ECN_BITS << 4)) | bpf_htons((__u16)tos << 4);
}

/* The headers of a datagram that is sent on: DSCP, addresses, hops, length, and the checksum of IPv4. ECN stays. */
static __always_inline void ip_write(enum l3 l3, void *data, __u8 tos, struct addr source, struct addr destination,
				     __u16 udp_bytes)
{
	struct iphdr *ip = data + sizeof(struct ethhdr);
	struct ipv6hdr *ip6 = data + sizeof(struct ethhdr);

	if (l3 == L3_IPV6) {
		st16(ip6, ipv6_half_with_tos(ld16(ip6), tos));
		st64(&ip6->saddr, source.high);
		st64((void *)&ip6->saddr + 8, source.low);
		st64(&ip6->daddr, destination.high);
		st64((void *)&ip6->daddr + 8, destination.low);
		ip6->hop_limit = 64;
		ip6->payload_len = bpf_htons(udp_bytes);
		return;
	}
	ip->tos = (ip->tos & ECN_BITS) | tos;
	ip->saddr = source.low;
	ip->daddr = destination.low;
	ip->ttl = 64;
	ip->tot_len = bpf_htons(udp_bytes + sizeof(*ip));
	ipv4_checksum_set(ip);
}

/* Another destination for a frame that ip_write has made. */
static __always_inline void ip_destination_set(enum l3 l3, void *data, const struct mlnet_addr *to)
{
	struct iphdr *ip = data + sizeof(struct ethhdr);
	struct ipv6hdr *ip6 = data + sizeof(struct ethhdr);
	struct addr destination = addr_load(l3, to);

	if (l3 == L3_IPV6) {
		st64(&ip6->daddr, destination.high);
		st64((void *)&ip6->daddr + 8, destination.low);
		return;
	}
	ip->daddr = destination.low;
	ipv4_checksum_set(ip);
}

#endif /* MLNET_LIB_L3_BPF_H */
