/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stage 1 of the packet path: Ethernet, IPv4, UDP and the mlnet header. The only place that decides
 * whether a packet is ours; everything else passes untouched.
 */
#ifndef MLNET_LIB_PARSE_BPF_H
#define MLNET_LIB_PARSE_BPF_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <mlnet/config.h>
#include <mlnet/job.h>

#include "bytes.bpf.h"

#define HEADERS_BYTES 64 /* Ethernet 14, IPv4 20, UDP 8, mlnet 22 */
#define HEADER_AT 42
#define TRAILER_BYTES 42

extern const volatile struct mlnet_cfg ml_cfg;

/*
 * One packet. The header is held as the three words h0, h1, h2 that the check word mixes
 * (bytes 0-7, 8-15, 16-21); the fields beside them are cut out of those.
 */
struct pkt {
	void *data;
	void *data_end;
	void *trailer;
	__u64 h0, h1, h2;
	__u64 seq;
	__u32 saddr_be, daddr_be;
	__u32 blocks;	     /* payload blocks present in this packet */
	__u32 words;	     /* nominal payload words of the seq */
	__u32 fingerprint;
	__u32 node_stats_id; /* counters of the job, 0 until it is known */
	__u32 frame_bytes;
	__u16 job, epoch;
	__u8 type, op, op_wire, tree, class_stream, child, flags;
};

/*
 * Trip count of a loop over payload blocks. The mask makes a value of its own for each loop: otherwise
 * the verifier carries the exact count out of the first loop and walks all that follows once per count
 * (306,445 instructions instead of 73,906, clang 19).
 */
static __always_inline __u32 pkt_loop_blocks(const struct pkt *p)
{
	return masked(p->blocks, 15);
}

static __always_inline void pkt_cut_header(struct pkt *p)
{
	p->type = p->h0 & 0xf;
	p->op_wire = p->h0 >> 8;
	p->op = (p->h0 >> 12) & 0xf;
	p->job = p->h0 >> 16;
	p->epoch = p->h0 >> 32;
	p->tree = p->h0 >> 48;
	p->class_stream = p->h0 >> 56;
	p->child = p->h1;
	p->flags = p->h1 >> 8;
	p->words = (p->h1 >> 16) & 0xffff;
	p->seq = (p->h1 >> 32) | ((p->h2 & 0xffff) << 32);
	p->fingerprint = p->h2 >> 16;
}

/* 0: an mlnet packet of this version, all of its lengths checked against data_end. */
static __always_inline enum mlnet_verdict pkt_parse(struct xdp_md *ctx, struct pkt *p)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + sizeof(*eth);
	struct udphdr *udp = (void *)(ip + 1);
	__u32 payload, length;

	if ((void *)(udp + 1) > data_end)
		return MLNET_V_PASS_NOT_OURS;
	if (eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 || ip->version != 4 ||
	    ip->protocol != IPPROTO_UDP)
		return MLNET_V_PASS_NOT_OURS;
	if (ip->frag_off & bpf_htons(0x1fff)) /* a later fragment has no UDP header to look at */
		return MLNET_V_PASS_NOT_OURS;
	if (udp->dest != ml_cfg.port_be)
		return MLNET_V_PASS_NOT_OURS;
	if (ip->frag_off & bpf_htons(0x2000))
		return MLNET_V_DROP_FRAGMENT;
	if (data + HEADERS_BYTES + TRAILER_BYTES > data_end)
		return MLNET_V_DROP_MALFORMED;

	p->h0 = ld64(data + HEADER_AT);
	p->h1 = ld64(data + HEADER_AT + 8);
	p->h2 = ld48(data + HEADER_AT + 16);
	if (((p->h0 >> 4) & 0xf) != MLNET_PROTO_VERSION)
		return MLNET_V_DROP_VERSION;
	pkt_cut_header(p);

	if (p->words > MLNET_WORDS_MAX || p->words % MLNET_BLOCK_WORDS)
		return MLNET_V_DROP_MALFORMED;
	p->blocks = (p->flags & MLNET_F_NO_PAYLOAD) ? 0 : p->words / MLNET_BLOCK_WORDS;
	payload = p->blocks * MLNET_BLOCK_BYTES;
	length = sizeof(*ip) + sizeof(*udp) + sizeof(struct mlnet_hdr) + payload + TRAILER_BYTES;
	if (ip->tot_len != bpf_htons(length) || udp->len != bpf_htons(length - sizeof(*ip)))
		return MLNET_V_DROP_MALFORMED;
	p->trailer = data + HEADERS_BYTES + payload;
	if (p->trailer + TRAILER_BYTES > data_end)
		return MLNET_V_DROP_FRAGMENT; /* the rest sits in another buffer */

	p->data = data;
	p->data_end = data_end;
	p->saddr_be = ip->saddr;
	p->daddr_be = ip->daddr;
	p->frame_bytes = data_end - data;
	return 0;
}

#endif /* MLNET_LIB_PARSE_BPF_H */
