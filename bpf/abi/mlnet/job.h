/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Map names, keys and values. mlnetd writes the tables, the XDP program reads them and owns the
 * slots; ranks map the inbox read-only.
 *
 *   ml_jobs     ARRAY_OF_MAPS  job id -> ARRAY of mlnet_node, by tree  daemon swaps whole entries
 *   ml_slots    ARRAY          slot index -> mlnet_slot              program, under the slot's lock
 *   ml_words    ARRAY_OF_MAPS  words id -> ARRAY(2P) of mlnet_words  program, under the slot's lock
 *   ml_inboxes  ARRAY_OF_MAPS  inbox id -> ARRAY of mlnet_cell       program; frozen, mapped by ranks or the server
 *   ml_wakes    ARRAY_OF_MAPS  inbox id -> ARRAY(1) of mlnet_wake    ranks set, program clears
 *   ml_rings    ARRAY_OF_MAPS  ring id -> RINGBUF of mlnet_notice    program -> one rank
 *   ml_fans     ARRAY_OF_MAPS  fan id -> DEVMAP of n same-NIC ports  daemon
 *   ml_links    ARRAY          link base + child -> mlnet_link       program learns, daemon reads
 *   ml_stats    PERCPU_ARRAY   stats id -> mlnet_stats               program counts
 *   ml_events   RINGBUF        mlnet_event                           program -> daemon
 *   ml_fan_state PERCPU_ARRAY  0 -> mlnet_fan_state                  which copy the egress program is at
 *   ml_programs PROG_ARRAY     what a program hands over to          set when the programs are loaded; they have no attach type
 *   ml_mac_state PERCPU_ARRAY   0 -> mlnet_mac_state                 what the programs of a tagged packet tell each other
 *   ml_keys     HASH           MLNET_KEY_ID -> mlnet_key, see mac.h  daemon; nobody reads it but the program
 *
 *   ml_tags     PERCPU_ARRAY   traffic class -> mlnet_tags           the tc program counts, see tag.h
 *
 * Index 0 of words, inboxes, wakes, rings, fans and stats is never given to a job: 0 means "none".
 */
#ifndef MLNET_ABI_JOB_H
#define MLNET_ABI_JOB_H

#include "mac.h"
#include "verdict.h"
#include "wire.h"

#define MLNET_ABI_VERSION 7 /* of everything in this file; part of the pin path */

#define MLNET_JOBS_MAX 65536
#define MLNET_TREES_MAX 32 /* of one job */
#define MLNET_SLOTS_MAX 65536 /* default size of ml_slots; mlnetd may set another before loading */
#define MLNET_WORDS_MAPS_MAX 8192
#define MLNET_INBOXES_MAX 1024
#define MLNET_RINGS_MAX 4096
#define MLNET_FANS_MAX 4096
#define MLNET_LINKS_MAX 16384
#define MLNET_STATS_MAX 4096
#define MLNET_KEYS_MAX 8192
#define MLNET_NOTICE_RING_BYTES 65536

/* ---- node: what one host does for one tree of a job, as the program sees it -------------------- */

#define MLNET_NODE_AGGREGATE 0x01 /* sums here: slots and children below are valid */
#define MLNET_NODE_DELIVER 0x02   /* has local ranks: inbox and parent below are valid */
#define MLNET_NODE_MULTICAST 0x04 /* results leave once, to group; else one copy per host */
#define MLNET_NODE_INNER 0x08     /* sums here, and sends the partial sum on to the node above */
#define MLNET_NODE_SERVER 0x10    /* root whose host has the job's server: gets sums with MLNET_F_SERVER */
#define MLNET_NODE_TRACE 0x20    /* every sum that is completed here is told to mlnetd (MLNET_EV_SUMMED) */
#define MLNET_NODE_MAC 0x40      /* all packets carry a tag, made with the key that ml_keys has for job and epoch */
#define MLNET_NODE_IPV6 0x80      /* all addresses of the job are IPv6; else all are IPv4 */

/* In network order. IPv4: mapped, ::ffff:a.b.c.d, of which the program reads the last word. All 0: none. */
struct mlnet_addr {
	__u32 be[4];
};

#define MLNET_POOLS_MAX 16 /* class + 8 * stream, as in class_stream */

struct mlnet_pool {
	__u32 slot_base;  /* first index in ml_slots (aggregate) */
	__u32 words_id;   /* inner map in ml_words, two entries a slot: slot * 2 + set (aggregate) */
	__u32 cell_base;  /* first cell of the pool in the inbox, slot * 2 + set from there (deliver) */
	__u8 log2_slots;  /* P = 1 << log2_slots */
	__u8 is_open;     /* 0: no such pool; packets for it are dropped by name */
	__u16 pad;
};

/* What packets of one class are marked with when they leave, whatever they came with. */
struct mlnet_mark {
	__u8 tos;      /* DSCP in the upper six bits, as in the IP header; the two of ECN are 0 here */
	__u8 priority; /* skb->priority: 0 to 7, more is more urgent; 802.1p carries the same number */
};
#define MLNET_PRIORITY_WAITS 8 /* below all of these: of a job that lets another one go first; 802.1p carries 0 */
#define MLNET_UID_ANY 0xffffffffU

struct mlnet_node {
	__u16 epoch;
	__u16 port_be; /* UDP port of the data path, network order */
	__u8 flags;    /* MLNET_NODE_*; 0: nothing, the job has no such tree here */
	__u8 n_children;
	__u8 n_fan;   /* other hosts that get a copy of a result: entries of fan_child */
	__u8 n_local; /* ranks on this host: entries of local_ring */
	__u64 members; /* bit per child that must contribute */
	struct mlnet_addr addr;   /* own address as aggregator */
	struct mlnet_addr local;  /* the same for ranks of this host, whose packets come by a veth; or none */
	struct mlnet_addr group;  /* multicast group of results */
	struct mlnet_addr parent; /* the node above this host's ranks: the own `local` if it sums itself */
	struct mlnet_addr up;     /* the node above this one (inner) */
	struct mlnet_addr root;   /* where multicast results come from */
	__u32 forward_ns; /* a sum goes up again, or its server is reminded, after that time (inner, server) */
	__u32 inbox_id;
	__u32 server_inbox_id; /* cells for the server, laid out as the ranks' (server) */
	__u32 server_ring_id;
	__u32 fan_id;
	__u32 link_base;
	__u32 stats_id;
	__u8 group_mac[6];
	__u8 nic_mac[6]; /* of the NIC behind fan_id: the source of what local packets become */
	__u8 up_mac[6];  /* next hop to `up`, kept by mlnetd (inner) */
	__u8 up_child;   /* own index at the node above (inner) */
	__u8 pad;
	struct mlnet_pool pools[MLNET_POOLS_MAX];
	struct mlnet_addr child_addr[MLNET_CHILDREN_MAX]; /* source address each child must have */
	__u8 fan_child[MLNET_CHILDREN_MAX];	     /* copy k goes to the host of this child */
	__u8 child_local[MLNET_CHILDREN_MAX];	     /* child -> local index + 1, 0: not on this host */
	__u32 local_ring[MLNET_CHILDREN_MAX];	     /* local index -> ring id */
	struct mlnet_mark marks[MLNET_CLASSES_MAX];
	__u32 uid; /* whose processes may send for the job from here, besides root's; MLNET_UID_ANY: all */
	__u32 pad2;
};

/* ---- slots ---------------------------------------------------------------------------------------- */

enum mlnet_set_state {
	MLNET_SET_EMPTY = 0,
	MLNET_SET_FILLING = 1,
	MLNET_SET_UNSENT = 2,   /* complete; waits for a packet long enough to carry the sum (rule 4) */
	MLNET_SET_COMPLETE = 3, /* complete and sent at least once; a sum for the server: waits for its answer */
	MLNET_SET_POISONED = 4, /* rule 6 */
	MLNET_SET_RESULT = 5,   /* the words are the result, which came from above or from the server */
};

struct mlnet_set {
	__u64 seq;
	__u64 contributed; /* bit per child whose words are in */
	__u64 proved;      /* bit per child that has sent this seq, on time or late (rule 3) */
	__u64 check;       /* sum of the contributions' S, see wire.h */
	__u64 first_ns;    /* arrival of the first contribution; once it went up or to the server: when, last */
	__u32 fingerprint;
	__u16 epoch;
	__u16 weight;
	__u16 words;
	__u8 op_wire;
	__u8 state; /* enum mlnet_set_state */
	__u8 flags; /* OR of the children's MLNET_F_OR_MASK bits, and FORCED */
	__u8 has_words; /* a contribution with payload has been stored */
	__u8 pad[2];
	__u8 exps[MLNET_EXPS_BYTES]; /* at 56: read and written as 8 + 8 + 4 + 2 bytes */
	__u8 pad2[2];
};

struct mlnet_slot {
	struct bpf_spin_lock lock; /* guards both sets and their words */
	__u32 pad;
	struct mlnet_set set[2];
};

struct mlnet_words {
	__u64 w[MLNET_WORDS_MAX];
};

/* ---- inbox ----------------------------------------------------------------------------------------- */

/* Epoch and seq as one number that grows: a cell is written only by a higher one (rule 5). */
#define MLNET_STAMP(epoch, seq) (((__u64)(epoch) << MLNET_SEQ_BITS) | ((seq) & MLNET_SEQ_MASK))

struct mlnet_cell {
	__u64 claimed;   /* stamp of the newest writer; compare-and-swap decides who writes */
	__u64 published; /* stamp whose words are whole; written last */
	__u64 bitmap;    /* of the result; in the server's inbox: stamp whose answer the root has taken */
	__u64 time_ns; /* CLOCK_MONOTONIC of delivery */
	__u32 fingerprint;
	__u16 weight;
	__u16 words;
	__u8 op_wire;
	__u8 flags;
	__u8 exps[MLNET_EXPS_BYTES];
	__u64 w[MLNET_WORDS_MAX];
};
/* A stamp of epoch 0 never occurs: epochs start at 1, so a zeroed cell is older than any result. */

struct mlnet_wake {
	__u64 asleep; /* bit per local index: this rank sleeps on its ring */
};

/* ---- links, counters, fan-out --------------------------------------------------------------------- */

struct mlnet_link {
	__u64 mac; /* bytes 0-5: link address of the child's next hop, learnt; 0: not yet */
	__u64 last_ns;  /* last PING; sampled: last contribution */
	__u64 ping;     /* the highest seq of a PING (MLNET_NODE_MAC): what is not above it shows nothing */
	__u64 lag_ns;   /* sampled: sum of arrival behind the first contribution of the set */
	__u64 lag_count;
};

struct mlnet_stats {
	__u64 verdicts[MLNET_VERDICTS_MAX];
	__u64 bytes_in;         /* frame bytes of mlnet packets */
	__u64 words_summed;     /* payload words added or copied into slots */
	__u64 contributions;    /* packets summed in this kernel */
	__u64 results;          /* results sent, first time */
};

/* In front of a frame that goes through a devmap: what the egress program must do with it. */
struct mlnet_fan_meta {
	__u32 magic;
	__u16 job;
	__u8 tree;
	__u8 pad;
	__u64 broadcast_id; /* copies of one result share it; the copy index restarts when it changes */
	struct mlnet_nh nh; /* of a job with MLNET_NODE_MAC: the part of the tag that copies share */
};
#define MLNET_FAN_MAGIC 0x4e41466dU

struct mlnet_fan_state {
	__u64 next_id;
	__u64 current_id;
	__u32 copy;
	__u32 pad;
};

/* Of the packet that this CPU is at. */
struct mlnet_mac_state {
	__u32 is_right; /* its tag was looked at; taken back when that is made use of */
	__u32 action;	/* XDP action once it has its new tag */
};

MLNET_STATIC_ASSERT(sizeof(struct mlnet_pool) == 16, "pool layout");
MLNET_STATIC_ASSERT(sizeof(struct mlnet_node) == 16 + 6 * 16 + 7 * 4 + 20 + 256 + 64 * 16 + 64 + 64 + 256 + 24,
		    "node layout");
MLNET_STATIC_ASSERT(sizeof(struct mlnet_set) == 80, "set layout");
MLNET_STATIC_ASSERT(sizeof(struct mlnet_slot) == 168, "slot layout");
MLNET_STATIC_ASSERT(sizeof(struct mlnet_words) % 64 == 0, "words keep cache line alignment");
MLNET_STATIC_ASSERT(sizeof(struct mlnet_cell) == 64 + MLNET_WORDS_MAX * 8, "cell layout");
MLNET_STATIC_ASSERT(sizeof(struct mlnet_fan_meta) == 32, "the most that XDP metadata may have");

#endif /* MLNET_ABI_JOB_H */
