// SPDX-License-Identifier: GPL-2.0-only
/*
 * tc egress: what this host's processes send of mlnet leaves with the marks that mlnetd gave its job and class, whatever
 * they set. README.md beside this file says what that protects from, and what not.
 *   find -> whose is it -> mark -> count
 * And the classifier for queues where the kernel has none that goes by skb->priority.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include <mlnet/tag.h>

#include "find.bpf.h"
#include "mark.bpf.h"
#include "../lib/jobs.bpf.h"

const volatile struct mlnet_cfg ml_cfg = {
	.port_be = __bpf_constant_htons(MLNET_UDP_PORT),
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MLNET_CLASSES_MAX);
	__type(key, __u32);
	__type(value, struct mlnet_tags);
} ml_tags SEC(".maps");

/* A packet without a socket is one that a namespace on this host handed on, of which nothing is known. */
static __always_inline int is_foreign(struct __sk_buff *skb, const struct mlnet_node *node)
{
	__u32 uid;

	if (node->uid == MLNET_UID_ANY || !skb->sk)
		return 0;
	uid = bpf_get_socket_uid(skb);
	return uid && uid != node->uid;
}

/* Whether the packet may have the marks of its job and class: TAGGED, or why not. */
static __always_inline enum mlnet_tag judge(struct __sk_buff *skb, const struct found *f, const struct mlnet_node *node)
{
	if (!node || !node->flags || node->epoch != f->epoch)
		return MLNET_TAG_UNKNOWN_JOB;
	if (!node->pools[masked(f->class_stream, MLNET_POOLS_MAX - 1)].is_open)
		return MLNET_TAG_NO_CLASS;
	return is_foreign(skb, node) ? MLNET_TAG_FOREIGN : MLNET_TAG_TAGGED;
}

/* What libmlnet sets where it does not know of a table or a ceiling: CS0 to CS7. Nobody was overruled then. */
static __always_inline int is_default(const struct found *f)
{
	return (f->tos & ~ECN_BITS) == MLNET_CLASS(f->class_stream) << 5;
}

static __always_inline enum mlnet_tag tag(struct __sk_buff *skb, const struct found *f)
{
	const struct mlnet_node *node = node_find(f->job, f->tree);
	enum mlnet_tag outcome = judge(skb, f, node);
	struct mlnet_mark mark = {};

	if (outcome == MLNET_TAG_TAGGED && node)
		mark = *node_mark(node, f->class_stream);
	skb->priority = mark.priority;
	pcp_set(skb, mark.priority & 7);
	if ((f->tos & ~ECN_BITS) == mark.tos)
		return outcome;
	dscp_set(skb, f, mark.tos);
	return outcome == MLNET_TAG_TAGGED && !is_default(f) ? MLNET_TAG_OVERRULED : outcome;
}

static __always_inline void count(const struct __sk_buff *skb, const struct found *f, enum mlnet_tag outcome)
{
	__u32 key = MLNET_CLASS(f->class_stream), packets = skb->gso_segs;
	struct mlnet_tags *tags = bpf_map_lookup_elem(&ml_tags, &key);

	if (tags)
		tags->packets[masked(outcome, MLNET_TAGS_MAX - 1)] += packets ? packets : 1;
}

/* Later filters get their turn: this one only marks. */
SEC("tc")
int ml_tag(struct __sk_buff *skb)
{
	struct found f = {};

	if (find(skb, ml_cfg.port_be, &f))
		count(skb, &f, skb->ingress_ifindex ? MLNET_TAG_TRANSIT : tag(skb, &f));
	return TC_ACT_UNSPEC;
}

/* The class of an htb qdisc that mlnetctl qos has made. */
SEC("tc")
int ml_classify(struct __sk_buff *skb)
{
	__u32 priority = skb->priority;

	return MLNET_QOS_HANDLE | (MLNET_QOS_FIRST_LEAF + MLNET_QOS_BAND(priority));
}

char LICENSE[] SEC("license") = "GPL";
