/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What step.bpf.c writes over the packet before each run, and packet_path.cc tells it. */
#ifndef MLNET_BENCH_STEP_H
#define MLNET_BENCH_STEP_H

#include "mlnet/port.h"

/* Cut where the packet path loads: a load that spans two fresh stores would stall as no packet from a NIC does. */
struct bench_step {
	__u64 front[5]; /* bytes 0-7, 6-13, 14-21, 22-29, 30-37 of an IPv4 frame */
	__u64 udp_rest; /* 38-41 */
	__u64 h0, h1, h2; /* header without seq; of child 0 */
	__u64 bitmap, weight, e0, e1, e2;
	__u64 base; /* seq of the first packet */
	__u32 at, slots; /* seq - base; back to 0 at `slots`, and the next child's turn */
	__u32 child, children; /* after all of them base grows by `slots`; children differ in the last byte of their address */
	__u32 trailer_at;
	__u32 program; /* what runs on the packet: index in bench_programs */
};

#endif /* MLNET_BENCH_STEP_H */
