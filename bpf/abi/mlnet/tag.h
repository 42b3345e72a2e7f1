/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the tc program did with the mlnet packets that this host's processes sent, by traffic class. Each packet has one
 * outcome; this table is the only list of them. Append only: the number is the counter's index.
 */
#ifndef MLNET_ABI_TAG_H
#define MLNET_ABI_TAG_H

#include "job.h"

/* X(name, help) */
#define MLNET_TAGS(X) \
	X(TAGGED, "had the DSCP of its job and class already") \
	X(OVERRULED, "had another DSCP: given that of its job and class") \
	X(UNKNOWN_JOB, "names a job, tree or epoch that this host has no part in: DSCP 0") \
	X(NO_CLASS, "names a class that its job does not have: DSCP 0") \
	X(FOREIGN, "sent by a process of a user whose job it is not: DSCP 0") \
	X(TRANSIT, "came from another host and is passed on: left as it is")

enum mlnet_tag {
#define MLNET_X(name, help) MLNET_TAG_##name,
	MLNET_TAGS(MLNET_X)
#undef MLNET_X
	MLNET_TAG_COUNT
};

#define MLNET_TAGS_MAX 8 /* counters per class: room for outcomes to come */

struct mlnet_tags {
	__u64 packets[MLNET_TAGS_MAX]; /* as they are on the wire: a batch counts its segments */
};

/*
 * Bands of a qdisc that goes by skb->priority (mlnetctl qos), the most urgent one first: classes 7 to 0, the last one of
 * them with all that has no priority, then jobs that let others go first.
 */
#define MLNET_QOS_BANDS 9
#define MLNET_QOS_BAND(priority) \
	((priority) < MLNET_CLASSES_MAX ? MLNET_CLASSES_MAX - 1 - (priority) : (priority) == MLNET_PRIORITY_WAITS ? 8 : 7)
#define MLNET_QOS_HANDLE 0x6d6c0000U /* 6d6c: is "ml" */
#define MLNET_QOS_FIRST_LEAF 0x10    /* class of the first band (htb) */

MLNET_STATIC_ASSERT(MLNET_TAG_COUNT <= MLNET_TAGS_MAX, "outcomes have counters");

#endif /* MLNET_ABI_TAG_H */
