/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stage 1 of the packet path: Ethernet, IP, UDP and the mlnet header. The only place that decides
 * whether a packet is ours; everything else passes untouched.
 */
#ifndef MLNET_LIB_PARSE_BPF_H
#define MLNET_LIB_PARSE_BPF_H

#include "l3.bpf.h"

#define TRAILER_BYTES 42
#define BLOCKS_MASK 31 /* MLNET_BLOCKS_MAX fits */

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
	__u32 blocks;	     /* payload blocks present in this packet */
	__u32 words;	     /* nominal payload words of the seq */
	__u32 fingerprint;
	__u32 node_stats_id; /* counters of the job, 0 until it is known */
	__u32 frame_bytes;
	__u32 mac_bytes;     /* behind the trailer: MLNET_MAC_BYTES, or none */
	__u16 job, epoch;
	__u8 type, op, op_wire, tree, class_stream, child, flags;
	enum l3 l3; /* a constant */
};

static __always_inline void *pkt_payload(const struct pkt *p)
{
	return p->data + payload_at(p->l3);
}

/* Addresses as they came: not to be asked once the frame has got others. */
static __always_inline struct addr pkt_source(const struct pkt *p)
{
	return ip_source(p->l3, p->data);
}

static __always_inline struct addr pkt_destination(const struct pkt *p)
{
	return ip_destination(p->l3, p->data);
}

static __always_inline __u8 pkt_congestion(const struct pkt *p)
{
	return ip_congestion(p->l3, p->data, MLNET_F_CE);
}

static __always_inline __u16 pkt_udp_bytes(const struct pkt *p)
{
	return sizeof(struct udphdr) + sizeof(struct mlnet_hdr) + p->blocks * MLNET_BLOCK_BYTES + TRAILER_BYTES +
	       p->mac_bytes;
}

/*
 * Trip count of a loop over payload blocks. The mask makes a value of its own for each loop: otherwise
 * the verifier carries the exact count out of the first loop and walks all that follows once per count
 * (306,445 instructions instead of 73,906, clang 19).
 */
static __always_inline __u32 pkt_loop_blocks(const struct pkt *p)
{
	return masked(p->blocks, BLOCKS_MASK);
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

/*
 * The same fields as new values: until here none of them has to be kept on the stack, and the verifier forgets what it knew of
 * each (stack of ml_ingress 448 instead of 456 bytes, 295,310 instructions instead of 392,097, clang 19).
 */
static __always_inline void pkt_cut_again(struct pkt *p)
{
	asm volatile("" : "+r"(p->h0), "+r"(p->h1), "+r"(p->h2));
	pkt_cut_header(p);
}

/* 0: an mlnet packet of this version, all of its lengths checked against data_end. */
static __always_inline enum mlnet_verdict pkt_parse(struct xdp_md *ctx, struct pkt *p)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	void *header = data + header_at(p->l3);
	enum mlnet_verdict verdict = ip_parse(p->l3, data, data_end);

	if (verdict)
		return verdict;
	if (data + payload_at(p->l3) + TRAILER_BYTES > data_end)
		return MLNET_V_DROP_MALFORMED;

	p->h0 = ld64(header);
	p->h1 = ld64(header + 8);
	p->h2 = ld48(header + 16);
	if (((p->h0 >> 4) & 0xf) != MLNET_PROTO_VERSION)
		return MLNET_V_DROP_VERSION;
	pkt_cut_header(p);

	if (p->words > MLNET_WORDS_MAX || p->words % MLNET_BLOCK_WORDS)
		return MLNET_V_DROP_MALFORMED;
	/*
	 * The mask bounds the trailer's offset for the verifier, whichever register clang compared above: Linux 6.1 checks no
	 * access to a packet at an offset that could be 64 KiB or more.
	 */
	p->blocks = (p->flags & MLNET_F_NO_PAYLOAD) ? 0 : masked(p->words / MLNET_BLOCK_WORDS, BLOCKS_MASK);
	p->mac_bytes = 0;
	p->mac_bytes = masked(udp_bytes(p->l3, data) - pkt_udp_bytes(p), MLNET_MAC_BYTES);
	if (!ip_has_bytes(p->l3, data, pkt_udp_bytes(p)))
		return MLNET_V_DROP_MALFORMED;
	p->trailer = data + payload_at(p->l3) + p->blocks * MLNET_BLOCK_BYTES;
	if (p->trailer + TRAILER_BYTES > data_end)
		return MLNET_V_DROP_FRAGMENT; /* the rest sits in another buffer */

	p->data = data;
	p->data_end = data_end;
	p->frame_bytes = data_end - data;
	return 0;
}

#endif /* MLNET_LIB_PARSE_BPF_H */
