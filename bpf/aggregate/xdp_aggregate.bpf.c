// SPDX-License-Identifier: GPL-2.0-only
/*
 * The spine of the packet path: one XDP entry per NIC for both roles, aggregator and host of ranks.
 *   parse -> find the job -> admit -> verify -> claim a set -> add -> emit        (contributions)
 *                                            -> deliver to inbox or notice ring   (results, replies)
 * A stage returns 0 for "go on", a verdict for "the packet ends here".
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "maps.bpf.h"
#include "admit.bpf.h"
#include "slot.bpf.h"
#include "accumulate.bpf.h"
#include "emit.bpf.h"
#include "deliver.bpf.h"
#include "egress.bpf.h"
#include "event.bpf.h"
#include "inner.bpf.h"
#include "mac.bpf.h"
#include "programs.bpf.h"
#include "server.bpf.h"
#include "../lib/finish.bpf.h"

const volatile struct mlnet_cfg ml_cfg = {
	.port_be = __bpf_constant_htons(MLNET_UDP_PORT),
	.lag_mask = 15,
};

int ml_ingress(struct xdp_md *ctx);
int ml_ingress6(struct xdp_md *ctx);
int ml_server(struct xdp_md *ctx);
int ml_server6(struct xdp_md *ctx);
int ml_mac_check(struct xdp_md *ctx);
int ml_mac_set(struct xdp_md *ctx);

/* What a program hands a packet over to. Each is one of its own, because the verifier's limit is one per program. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PROGRAMS);
	__uint(key_size, sizeof(__u32));
	__array(values, int(struct xdp_md *));
} ml_programs SEC(".maps") = {
	.values = {
		[PROGRAM_INGRESS6] = (void *)&ml_ingress6,
		[PROGRAM_SERVER] = (void *)&ml_server,
		[PROGRAM_SERVER6] = (void *)&ml_server6,
		[PROGRAM_INGRESS] = (void *)&ml_ingress,
		[PROGRAM_MAC_CHECK] = (void *)&ml_mac_check,
		[PROGRAM_MAC_SET] = (void *)&ml_mac_set,
	},
};

/* Whether the finished sum is not the result yet: it goes to the node above, or to the server of this host. */
static __always_inline __u32 set_goes_up(const struct mlnet_set *set, const struct mlnet_node *node)
{
	return (node->flags & MLNET_NODE_INNER) | is_for_server(node, set->flags);
}

/*
 * A retry of a partial sum that is complete, while the result is not here: forwarded again, at most once in
 * node->forward_ns, or for the first time if it had no packet yet. A server is only reminded. Lock held.
 */
static __always_inline enum mlnet_verdict partial_answer(struct mlnet_set *set, struct mlnet_words *words, struct pkt *p,
							 struct trailer_words *t, const struct mlnet_node *node,
							 __u64 now_ns, struct reply *reply)
{
	int is_early = now_ns - set->first_ns < node->forward_ns, has_server = node->flags & MLNET_NODE_SERVER;

	if (set->state == MLNET_SET_COMPLETE && (is_early || has_server)) {
		reply->type = MLNET_T_HELD; /* nobody is missing below this node */
		if (is_early)
			return MLNET_V_HELD;
		set->first_ns = now_ns;
		return MLNET_V_SERVER_REMINDED; /* its cell still holds the sum */
	}
	if (!pkt_fits_partial(p, set)) {
		reply->type = MLNET_T_RESEND;
		return MLNET_V_ASK_RESEND;
	}
	set->state = MLNET_SET_COMPLETE;
	set->first_ns = now_ns;
	partial_write(p, set, words, node, t, MLNET_F_RETRY);
	return MLNET_V_PARTIAL_AGAIN_TX;
}

/* What a retry of something complete gets: the sum if the packet can carry it. Lock held. */
static __always_inline enum mlnet_verdict set_answer(struct mlnet_set *set, struct mlnet_words *words, struct pkt *p,
						     struct trailer_words *t, const struct mlnet_node *node,
						     __u64 now_ns, struct reply *reply)
{
	if (set->state == MLNET_SET_RESULT && !node->n_fan)
		return MLNET_V_DROP_RESULT_HERE;
	if (set->state != MLNET_SET_RESULT && set_goes_up(set, node))
		return partial_answer(set, words, p, t, node, now_ns, reply);
	if (!pkt_has_room(p)) {
		reply->type = MLNET_T_RESEND;
		return MLNET_V_ASK_RESEND;
	}
	result_write(p, set, words, t);
	if (set->state != MLNET_SET_UNSENT)
		return MLNET_V_RESEND_RESULT;
	set->state = MLNET_SET_COMPLETE;
	return MLNET_V_SUM_SENT_LATE;
}

/* Rule 4: the completing packet carries the sum, or asks its sender for one that can. Lock held. */
static __always_inline enum mlnet_verdict set_complete(struct mlnet_set *set, struct mlnet_words *words, struct pkt *p,
						       struct trailer_words *t, const struct mlnet_node *node,
						       __u64 now_ns, struct reply *reply)
{
	int goes_up = set_goes_up(set, node);

	if (goes_up ? !pkt_fits_partial(p, set) : !pkt_has_room(p)) {
		set->state = MLNET_SET_UNSENT;
		reply->type = MLNET_T_RESEND;
		return MLNET_V_SUM_COMPLETE_UNSENT;
	}
	set->state = MLNET_SET_COMPLETE;
	if (goes_up) {
		set->first_ns = now_ns;
		partial_write(p, set, words, node, t, 0);
		return MLNET_V_PARTIAL_TX;
	}
	result_write(p, set, words, t);
	return MLNET_V_SUM_COMPLETE_TX;
}

/* Everything that happens under the slot's lock. */
static __always_inline enum mlnet_verdict slot_take(struct mlnet_slot *slot, struct mlnet_words *words,
						    __u32 set_index, const struct mlnet_node *node,
						    struct pkt *p, struct trailer_words *t,
						    __u64 sum, __u64 slots, __u64 now_ns, __u64 *lag_ns,
						    struct reply *reply)
{
	struct mlnet_set *set = &slot->set[set_index], *other = &slot->set[set_index ^ 1];
	__u64 bit = 1ULL << (p->child & 63);
	enum mlnet_verdict verdict;
	int is_first = 0;

	if (!set_holds(set, p->epoch, p->seq)) {
		verdict = set_claim(set, other, p, node->members, slots);
		if (verdict) {
			reply->type = MLNET_T_BUSY;
			return verdict;
		}
		set_open(set, p, now_ns);
		is_first = 1;
	} else if (!set_matches(set, p)) {
		reply->type = MLNET_T_MISMATCH;
		reply->fingerprint = set->fingerprint;
		return MLNET_V_MISMATCH;
	}
	set->proved |= bit;
	if (set->state != MLNET_SET_FILLING)
		return set_answer(set, words, p, t, node, now_ns, reply);
	if (set->contributed & bit) {
		reply->type = MLNET_T_HELD;
		reply->bitmap = node->members & ~set->contributed;
		return MLNET_V_HELD;
	}
	set_contribute(set, words, p, t, sum);
	*lag_ns = now_ns - set->first_ns;
	if ((set->contributed & node->members) == node->members)
		return set_complete(set, words, p, t, node, now_ns, reply);
	return is_first ? MLNET_V_SUM_FIRST : MLNET_V_SUM_ADD;
}

static __always_inline void link_sample(struct mlnet_link *link, __u64 now_ns, __u64 lag_ns)
{
	link->last_ns = now_ns;
	link->lag_ns += lag_ns;
	link->lag_count++;
}

/* What leaves, and what ranks of this host get without any wire. */
static __always_inline enum mlnet_verdict emit(struct xdp_md *ctx, const struct pkt *p,
					       const struct mlnet_node *node, const struct trailer_words *t,
					       struct reply *reply, enum mlnet_verdict verdict)
{
	switch (verdict) {
	case MLNET_V_SUM_COMPLETE_TX:
	case MLNET_V_SUM_SENT_LATE:
		if (node->flags & MLNET_NODE_DELIVER)
			result_deliver(p, node, t);
		return result_send_all(ctx, p, node, verdict == MLNET_V_SUM_SENT_LATE);
	case MLNET_V_RESEND_RESULT:
		return result_send_one(p, node);
	case MLNET_V_PARTIAL_TX:
	case MLNET_V_PARTIAL_AGAIN_TX:
		if (node->flags & MLNET_NODE_SERVER)
			return MLNET_V_SUM_TO_SERVER;
		return partial_send(p, node, verdict == MLNET_V_PARTIAL_AGAIN_TX);
	case MLNET_V_MISMATCH:
		event_mismatch(p, reply->fingerprint);
		return reply_send(ctx, p, node, reply, verdict);
	case MLNET_V_SERVER_REMINDED:
		server_remind(p, node);
		return reply_send(ctx, p, node, reply, verdict);
	case MLNET_V_SUM_COMPLETE_UNSENT:
	case MLNET_V_ASK_RESEND:
	case MLNET_V_HELD:
	case MLNET_V_BUSY:
		return reply_send(ctx, p, node, reply, verdict);
	default:
		return verdict;
	}
}

static __always_inline enum mlnet_verdict contribution(struct xdp_md *ctx, struct pkt *p,
						       const struct mlnet_node *node)
{
	__u32 link_key = node->link_base + (p->child & (MLNET_CHILDREN_MAX - 1));
	int is_sampled = !(p->seq & ml_cfg.lag_mask);
	__u64 now_ns = is_sampled || node->flags & (MLNET_NODE_INNER | MLNET_NODE_SERVER | MLNET_NODE_TRACE) ? bpf_ktime_get_ns() : 0;
	__u64 lag_ns = 0, sum;
	struct reply reply = { .fingerprint = p->fingerprint };
	enum mlnet_verdict verdict;
	struct trailer_words t;
	struct mlnet_link *link;
	struct place place;

	verdict = child_admit(p, node);
	if (verdict)
		return verdict;
	if (p->op >= MLNET_OP_COUNT)
		return MLNET_V_DROP_UNSUPPORTED;
	link = bpf_map_lookup_elem(&ml_links, &link_key);
	place_find(p, node, &place);
	if (!check_verify_fetching(p, place.words ? place.words->w : NULL, &t, &sum))
		return MLNET_V_DROP_CORRUPT;
	if (!place_is_there(&place) || !link)
		return pool_missing(p, node);

	pkt_cut_again(p);
	bpf_spin_lock(&place.slot->lock);
	verdict = slot_take(place.slot, place.words, place.set_index, node, p, &t, sum, place.slots, now_ns, &lag_ns,
			    &reply);
	bpf_spin_unlock(&place.slot->lock);

	if (is_taken(verdict)) {
		link_learn(link, p); /* of no other: a packet that was sent once more by somebody else would lead results astray */
		if (is_sampled)
			link_sample(link, now_ns, lag_ns);
	}
	if (node->flags & MLNET_NODE_TRACE && is_sum_complete(verdict))
		event_summed(p, lag_ns);
	return emit(ctx, p, node, &t, &reply, verdict);
}

static __always_inline enum mlnet_verdict from_parent(struct xdp_md *ctx, const struct pkt *p,
						      const struct mlnet_node *node)
{
	struct trailer_words t;
	enum mlnet_verdict verdict;
	__u64 sum;

	verdict = parent_admit(p, node);
	if (verdict)
		return verdict;
	if (!check_verify_fetching(p, cell_fetch(p, node), &t, &sum))
		return MLNET_V_DROP_CORRUPT;
	if (pkt_is_from_above(p, node))
		return p->type == MLNET_T_RESULT ? result_from_above(ctx, p, node, &t, sum)
						 : reply_from_above(p, node, &t);
	if (p->type == MLNET_T_RESULT)
		return result_deliver(p, node, &t);
	return reply_deliver(p, node, &t);
}

/* What goes on in ml_server ends here as SUM_TO_SERVER, what must be looked at by ml_mac_check first as DROP_MAC. */
static __always_inline enum mlnet_verdict ingress(struct xdp_md *ctx, struct pkt *p)
{
	struct mlnet_node *node;
	enum mlnet_verdict verdict;

	verdict = pkt_parse(ctx, p);
	if (verdict)
		return verdict;
	node = node_find(p->job, p->tree);
	if (!node) {
		mac_forget(p);
		return p->tree < MLNET_TREES_MAX ? MLNET_V_DROP_UNKNOWN_JOB : MLNET_V_DROP_NO_POOL;
	}
	verdict = node_admit(p, node);
	if (verdict) {
		mac_forget(p);
		return verdict;
	}
	if (masked(p->mac_bytes, MLNET_MAC_BYTES) && !mac_take())
		return MLNET_V_DROP_MAC;
	switch (p->type) {
	case MLNET_T_CONTRIB:
		return contribution(ctx, p, node);
	case MLNET_T_RESULT:
	case MLNET_T_HELD:
	case MLNET_T_BUSY:
	case MLNET_T_RESEND:
	case MLNET_T_MISMATCH:
		return from_parent(ctx, p, node);
	case MLNET_T_ANSWER:
		return MLNET_V_SUM_TO_SERVER;
	case MLNET_T_PING:
	case MLNET_T_PONG:
		return ping(ctx, p, node);
	default:
		return MLNET_V_DROP_UNSUPPORTED;
	}
}

/* The action; what leaves of a job with a tag gets it on the way out. */
static __always_inline int tagged_finish(struct xdp_md *ctx, const struct pkt *p, enum mlnet_verdict verdict)
{
	int action = finish(p, verdict, &ml_stats);
	struct mlnet_mac_state *state;

	if (!p->mac_bytes || (action != XDP_TX && action != XDP_REDIRECT))
		return action;
	state = mac_state();
	if (!state)
		return XDP_ABORTED;
	state->action = action;
	bpf_tail_call(ctx, &ml_programs, PROGRAM_MAC_SET);
	return XDP_ABORTED;
}

static __always_inline int ingress_finish(struct xdp_md *ctx, struct pkt *p)
{
	enum mlnet_verdict verdict = ingress(ctx, p);

	if (verdict == MLNET_V_SUM_TO_SERVER) {
		bpf_tail_call(ctx, &ml_programs, p->l3 == L3_IPV6 ? PROGRAM_SERVER6 : PROGRAM_SERVER);
		verdict = MLNET_V_UNDECIDED; /* that program is not there */
	} else if (verdict == MLNET_V_DROP_MAC && p->mac_bytes) {
		bpf_tail_call(ctx, &ml_programs, PROGRAM_MAC_CHECK);
	}
	return tagged_finish(ctx, p, verdict);
}

SEC("xdp")
int ml_ingress(struct xdp_md *ctx)
{
	struct pkt p = { .l3 = L3_IPV4 };

	if (frame_is_ipv6(ctx))
		bpf_tail_call(ctx, &ml_programs, PROGRAM_INGRESS6); /* goes on here only while it is not there */
	return ingress_finish(ctx, &p);
}

/* The same path for IPv6. */
SEC("xdp")
int ml_ingress6(struct xdp_md *ctx)
{
	struct pkt p = { .l3 = L3_IPV6 };

	return ingress_finish(ctx, &p);
}

/* The way to and from the server of a root. */
SEC("xdp")
int ml_server(struct xdp_md *ctx)
{
	struct pkt p = { .l3 = L3_IPV4 };

	return tagged_finish(ctx, &p, server(ctx, &p));
}

SEC("xdp")
int ml_server6(struct xdp_md *ctx)
{
	struct pkt p = { .l3 = L3_IPV6 };

	return tagged_finish(ctx, &p, server(ctx, &p));
}

#include "mac_programs.bpf.h"

SEC("xdp/devmap")
int ml_egress(struct xdp_md *ctx)
{
	return egress(ctx);
}

/* The same body where BPF_PROG_TEST_RUN can reach it: devmap programs cannot be test-run. */
SEC("xdp")
int ml_egress_test(struct xdp_md *ctx)
{
	return egress(ctx);
}

char LICENSE[] SEC("license") = "GPL";
