/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Records of the two kinds of ring buffers.
 *   mlnet_event   kernel -> mlnetd, one ring per host: what an operator or the control loop must know
 *   mlnet_notice  kernel -> one rank, one small ring per rank: replies to its packets, and wake-ups
 */
#ifndef MLNET_ABI_EVENT_H
#define MLNET_ABI_EVENT_H

#include "port.h"

enum mlnet_event_type {
	MLNET_EV_MISMATCH = 1,  /* a = fingerprint in the slot, b = fingerprint of the packet */
	MLNET_EV_PING_SEEN = 2, /* a root's PING came by multicast; a = nonce */
	MLNET_EV_POOL_WANTED = 3, /* a child's packet for an open pool that has no words yet */
	MLNET_EV_SUMMED = 4,      /* the sum of seq is complete here; a = ns since its first contribution (MLNET_NODE_TRACE) */
};

struct mlnet_event {
	__u32 event; /* enum mlnet_event_type */
	__u16 job;
	__u16 epoch;
	__u8 tree;
	__u8 class_stream;
	__u8 child;
	__u8 type; /* enum mlnet_type of the packet */
	__u32 pad;
	__u64 seq;
	__u64 a;
	__u64 b;
	__u64 time_ns; /* CLOCK_MONOTONIC */
};

/*
 * A wake-up carries type 0; everything else is the packet's type (HELD, BUSY, RESEND, MISMATCH). To the server:
 * CONTRIB, a child asked again for the answer to seq.
 */
struct mlnet_notice {
	__u8 type;
	__u8 tree;
	__u8 class_stream;
	__u8 child;
	__u16 epoch;
	__u16 weight;
	__u64 seq;
	__u64 bitmap;
	__u32 fingerprint;
	__u32 pad;
};

MLNET_STATIC_ASSERT(sizeof(struct mlnet_event) == 48, "event layout");
MLNET_STATIC_ASSERT(sizeof(struct mlnet_notice) == 32, "notice layout");

#endif /* MLNET_ABI_EVENT_H */
