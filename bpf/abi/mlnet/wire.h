/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The packet format. WIRE_FORMAT.md beside this file specifies it byte by byte with a worked
 * example; a change here is a change there, in the same commit.
 *
 *   Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8 | header 22 | payload words*8 | trailer 42 | tag 8, or none (mac.h)
 *
 * With these sizes the payload starts at byte 64 of an untagged IPv4 frame, and 176 words plus the
 * trailer fill an MTU of 1500 exactly; with IPv6 160 do. Larger MTUs take up to 352, what drivers still put
 * into one page with XDP's headroom. All multi-byte fields are little-endian.
 */
#ifndef MLNET_ABI_WIRE_H
#define MLNET_ABI_WIRE_H

#include "port.h"

#define MLNET_PROTO_VERSION 1
#define MLNET_UDP_PORT 28012 /* "ml"; configurable per daemon, the same on all hosts of a cluster */

#define MLNET_BLOCK_BYTES 128 /* payloads are multiples of it */
#define MLNET_BLOCK_WORDS 16
#define MLNET_BLOCKS_MAX 22
#define MLNET_BLOCKS_MTU1500 11 /* of a full packet at MTU 1500, IPv4, no tags */
#define MLNET_WORDS_MAX 352 /* MLNET_BLOCKS_MAX * MLNET_BLOCK_WORDS */
#define MLNET_MTU_MAX 2936 /* of a full packet with IPv6 and a tag */
#define MLNET_PAIRS_MAX 11
#define MLNET_EXPS_BYTES 22 /* exponent pairs, two bytes each */
/* Blocks under one exponent pair, in jobs whose full packets have so many blocks. Twice as many for 64-bit lanes. */
#define MLNET_BLOCKS_PER_PAIR(blocks) ((blocks) > MLNET_PAIRS_MAX ? 2 : 1)
#define MLNET_BLOCK64_BYTES 256 /* two blocks: 64-bit lanes go by them */
#define MLNET_PAIRS64_MAX 5 /* four bytes each */
#define MLNET_CHILDREN_MAX 64
#define MLNET_CLASSES_MAX 8
#define MLNET_STREAMS_MAX 2 /* 0 main, 1 fix-up */
#define MLNET_SEQ_BITS 48
#define MLNET_SEQ_MASK 0xffffffffffffULL
/* seq of a PING: when it was sent, by the clock (CLOCK_MONOTONIC) of its host, in 1024 ns: nine years until it wraps. */
#define MLNET_PING_SEQ(ns) ((__u64)(ns) >> 10 & MLNET_SEQ_MASK)
/*
 * bitmap of a PING: the way back to the rank that sent it, child by child, the last one in the lowest byte: each node that passes it on
 * adds one. The root copies it into its PONG, of which each node takes its own. Trees of more than eight levels have none that deep.
 */
#define MLNET_WAY_PUSH(way, child) ((__u64)(way) << 8 | (__u8)(child))
#define MLNET_WAY_POP(way) ((__u64)(way) >> 8)
#define MLNET_PONG_AGE_MAX (1ULL << 20) /* of a PONG that shows that somebody lives: about a second */
#define MLNET_CHILD_ALL 0xff /* child field of a result that is meant for every child */

/* Low nibble of mlnet_hdr.version_type. "up": from a child to its aggregator, "down": back. */
enum mlnet_type {
	MLNET_T_CONTRIB = 1,  /* up: a contribution, or a retry of one */
	MLNET_T_RESULT = 2,   /* down: the finished sum */
	MLNET_T_HELD = 3,     /* down: your contribution is in; bitmap names the missing children */
	MLNET_T_BUSY = 4,     /* down: the set still serves somebody; try again later */
	MLNET_T_RESEND = 5,   /* down: send this seq again, full length (rule 4) */
	MLNET_T_MISMATCH = 6, /* down: the slot holds another collective; fingerprint is the slot's */
	MLNET_T_FORCE = 7,    /* up: complete with who is there (rule 8) */
	MLNET_T_PROOF = 8,    /* up: late proof of an inner node (rule 8) */
	MLNET_T_PING = 9,     /* either: does this path work; seq is a nonce */
	MLNET_T_PONG = 10,    /* answer to PING, same seq */
	MLNET_T_ANSWER = 11,  /* up: what the server of the root makes of a sum; leaves as RESULT */
};

/* High nibble of mlnet_hdr.op_wire: what the kernel does with the words. */
enum mlnet_op {
	MLNET_OP_ADD64 = 0, /* 64-bit adds: biased lanes, int64, raw words with one contributor */
	MLNET_OP_ADD32 = 1, /* two int32 lanes a word, each wrapping on its own */
	MLNET_OP_MAX8 = 2,  /* bytewise unsigned maximum: probes, 8-bit keys */
	MLNET_OP_OR = 3,    /* bitwise or */
	MLNET_OP_MAX16 = 4, /* unsigned maximum of four lanes: probes of float64, 16-bit keys */
	MLNET_OP_MAX32 = 5, /* of two lanes */
	MLNET_OP_MAX64 = 6, /* of the word */
	MLNET_OP_XOR = 7,   /* bitwise exclusive or */
	MLNET_OP_COUNT = 8, /* first value that means nothing */
};

/* Low nibble of mlnet_hdr.op_wire: what the words mean to the ranks; the kernel only compares it. */
enum mlnet_wire {
	MLNET_WIRE_RAW = 0,     /* bits of one contributor */
	MLNET_WIRE_BIASED32 = 1, /* two biased 32-bit lanes a word */
	MLNET_WIRE_BIASED16 = 2, /* four biased 16-bit lanes */
	MLNET_WIRE_BIASED8 = 3,  /* eight biased 8-bit lanes */
	MLNET_WIRE_INT32 = 4,   /* two plain int32 lanes */
	MLNET_WIRE_INT64 = 5,   /* one plain int64 lane */
	MLNET_WIRE_EXPS = 6,    /* probe: block exponent pairs of the packets it covers */
	MLNET_WIRE_LOW32 = 7,   /* two unsigned lanes: low bits of wide blocks */
	MLNET_WIRE_FLOAT64 = 8, /* one biased 64-bit lane; the trailer's exponents have 16 bits */
	MLNET_WIRE_BITS = 9,    /* bits that mean something each: bitwise operations, non-finite marks */
	MLNET_WIRE_KEYS = 10,   /* keys whose unsigned order is that of the values: minimum and maximum */
	MLNET_WIRE_UINT = 11,   /* small integers in lanes twice their size, which cannot carry */
	MLNET_WIRE_LOW16 = 12,  /* four unsigned lanes: low bits of wide blocks */
};

/* mlnet_hdr.flags */
#define MLNET_F_NO_PAYLOAD 0x01 /* header and trailer only; `words` still names the seq's size */
#define MLNET_F_NO_DATA 0x02    /* up: nothing to add here, weight 0; down: nothing to read; payload is padding */
#define MLNET_F_RETRY 0x04      /* sent before; statistics only */
#define MLNET_F_FORCED 0x08     /* completed with a part of the children (rule 8) */
#define MLNET_F_OR_MASK 0xf0    /* these merge by OR over the children */
#define MLNET_F_NONFINITE 0x10  /* a NaN or an infinity was seen in this packet's elements */
#define MLNET_F_SERVER 0x20     /* the sum goes to the server of the root, whose answer is the result */
#define MLNET_F_CE 0x40         /* a queue on the way marked a contribution, or the result: RFC 3168's "congestion experienced" */

/* class_stream: bits 0-2 traffic class, bit 3 stream, others zero. */
#define MLNET_CLASS(cs) ((cs) & 0x7)
#define MLNET_STREAM(cs) (((cs) >> 3) & 0x1)
#define MLNET_CLASS_STREAM(c, s) ((__u8)(((c) & 0x7) | (((s) & 0x1) << 3)))

struct mlnet_hdr {
	__u8 version_type; /* version in the high nibble, enum mlnet_type in the low one */
	__u8 op_wire;      /* enum mlnet_op in the high nibble, enum mlnet_wire in the low one */
	__u16 job;
	__u16 epoch;
	__u8 tree;
	__u8 class_stream;
	__u8 child; /* index at the node above (up) or addressed child (down) */
	__u8 flags;
	__u16 words; /* payload words of this seq; a multiple of MLNET_BLOCK_WORDS, may be 0 */
	__u32 seq_lo;
	__u16 seq_hi;
	__u32 fingerprint; /* of the collective: kind, dtype, op, element count, root */
} MLNET_PACKED;

struct mlnet_trailer {
	__u64 check;    /* check word, see below */
	__u64 bitmap;   /* RESULT: contributors; HELD: missing children; else 0 */
	__u16 weight;   /* ranks summed in this packet */
	__u16 reserved; /* 0 */
	__u8 exps[MLNET_EXPS_BYTES]; /* block exponents of seq + P, as max-coded pairs */
} MLNET_PACKED;

/*
 * Check word (rule 6): S(payload) + mix, modulo 2^64.
 *   S    ADD32: the two lanes summed apart; all other operations: the sum of the payload words.
 *   mix  sum over i of w[i] * MLNET_MIX_K(i), plus MLNET_MIX_K(MLNET_MIX_WORDS), where w is
 *        header bytes 0-7, 8-15, 16-21; bitmap; weight + 2^16 * reserved; exps 0-7, 8-15, 16-21
 *        (each zero-extended). Odd multipliers: one changed field always shows.
 */
#define MLNET_MIX_WORDS 8
#define MLNET_MIX_K(i) (0x9e3779b97f4a7c15ULL * (2ULL * (i) + 1ULL))

/*
 * Exponent pair of a block, or of two in jobs with packets of more than MLNET_PAIRS_MAX, byte 2b the largest, byte 2b+1 the smallest; both merge by maximum. Elements
 * that are not finite do not count; MLNET_F_NONFINITE tells of them.
 *   largest   0: all zero; 1..254: biased float32 exponent of the largest magnitude (subnormals
 *             count as 1)
 *   smallest  0: all zero; else 255 - biased exponent of the smallest non-zero magnitude
 * MLNET_WIRE_FLOAT64: a pair covers MLNET_BLOCK64_BYTES or twice that, and both have 16 bits, at 4b and 4b+2: 1..2046 and
 * 2047 - exponent.
 * A probe packet carries the pairs of MLNET_PROBE_COVERS data packets, MLNET_EXPS_BYTES each.
 */
#define MLNET_PROBE_COVERS 128 /* MLNET_WORDS_MAX * 8 / MLNET_EXPS_BYTES */

MLNET_STATIC_ASSERT(sizeof(struct mlnet_hdr) == 22, "header is 22 bytes on the wire");
MLNET_STATIC_ASSERT(sizeof(struct mlnet_trailer) == 42, "trailer is 42 bytes on the wire");
MLNET_STATIC_ASSERT(14 + 20 + 8 + sizeof(struct mlnet_hdr) == 64, "payload starts at byte 64");
MLNET_STATIC_ASSERT(64 + MLNET_BLOCKS_MTU1500 * MLNET_BLOCK_BYTES + sizeof(struct mlnet_trailer) == 1514,
		    "a full packet fills MTU 1500");
MLNET_STATIC_ASSERT(MLNET_PROBE_COVERS * MLNET_EXPS_BYTES == MLNET_WORDS_MAX * 8,
		    "a probe covers 128 packets, or 64 at MTU 1500");

#endif /* MLNET_ABI_WIRE_H */
