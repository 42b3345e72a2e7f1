/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Between the lab and its fault programs: one entry of the map lab_links per direction of a link.
 * Interface indexes in the switch namespace are given out by the lab, so that both sides compute them.
 */
#ifndef MLNET_LAB_FAULT_H
#define MLNET_LAB_FAULT_H

#include <linux/types.h>

#define LAB_HOSTS_MAX 64
#define LAB_RACKS_MAX 32
#define LAB_LINKS_MAX (LAB_HOSTS_MAX + LAB_RACKS_MAX) /* hosts first, then the uplinks of racks */
#define LAB_PORT_IFINDEX 100 /* + link: its port on the switch, or on the core */
#define LAB_TAP_IFINDEX 300  /* + 2 * link + direction: where the delay line holds frames */
#define LAB_TX 0	     /* what the host or rack sends */
#define LAB_RX 1	     /* what it receives */

struct lab_link {
	/* Configuration; written by mlnet-lab, read by the programs and by the delay line. */
	__u32 loss_ppm;
	__u32 duplicate_ppm;
	__u32 reorder_ppm;
	__u32 corrupt_ppm;
	__u32 hold_us; /* how long the delay line keeps a frame */
	__u32 hold_all; /* 1: every frame is held, but for those chosen to be reordered; 0: only those */
	__u64 seed;
	__u64 mark_ns;	   /* backlog of the queue, in time at its rate, from which on frames are marked; 0: never */
	__u64 ns_per_kib;  /* the rate of that queue */
	/* Written by the programs. `frames` is also the index of the next frame's random numbers. */
	__u64 frames;
	__u64 lost;
	__u64 duplicated;
	__u64 reordered;
	__u64 corrupted;
	__u64 held;
	__u64 marked;
	__u64 empty_at_ns; /* when a queue at that rate would have sent all it was given; CLOCK_MONOTONIC */
};

#endif /* MLNET_LAB_FAULT_H */
