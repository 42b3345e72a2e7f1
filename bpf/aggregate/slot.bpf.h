/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stage 3 of the packet path: which set of the slot this packet may use.
 *
 * Rule 3 (claiming). Slot = seq mod P, set = (seq / P) mod 2, so a set serves k, k + 2P, k + 4P, ...
 *   1. A set that holds k is claimed by k + 2P only, and only when the other set holds k + P and every
 *      member has proved k + P: sending k + P proves that the result of k was consumed, so the words of
 *      k, kept as shadow copy for resends, can no longer be asked for.
 *   2. A set of another epoch is empty. Set 0 is then claimed by seq = slot, set 1 by slot + P once
 *      all have proved set 0.
 *   3. Older than the set: stale. Newer than that: BUSY, nothing is changed.
 * Epoch and seq are compared under the slot's lock; both sets and their words change only under it.
 */
#ifndef MLNET_AGGREGATE_SLOT_BPF_H
#define MLNET_AGGREGATE_SLOT_BPF_H

#include "check.bpf.h"
#include "maps.bpf.h"

static __always_inline int set_holds(const struct mlnet_set *set, __u16 epoch, __u64 seq)
{
	return set->state != MLNET_SET_EMPTY && set->epoch == epoch && set->seq == seq;
}

static __always_inline int set_proved(const struct mlnet_set *set, __u16 epoch, __u64 seq, __u64 members)
{
	return set_holds(set, epoch, seq) && (set->proved & members) == members;
}

/* 0: the set may be overwritten for p->seq. REQUIRES: lock held, the set does not hold p->seq. */
static __always_inline enum mlnet_verdict set_claim(const struct mlnet_set *set, const struct mlnet_set *other,
						    const struct pkt *p, __u64 members, __u64 slots)
{
	int is_of_epoch = set->state != MLNET_SET_EMPTY && set->epoch == p->epoch;

	if (is_of_epoch && p->seq < set->seq)
		return MLNET_V_DROP_STALE;
	if (is_of_epoch ? p->seq != set->seq + 2 * slots : p->seq >= 2 * slots)
		return MLNET_V_BUSY;
	if (p->seq >= slots && !set_proved(other, p->epoch, p->seq - slots, members))
		return MLNET_V_BUSY;
	return 0;
}

static __always_inline void set_open(struct mlnet_set *set, const struct pkt *p, __u64 now_ns)
{
	set->seq = p->seq;
	set->contributed = 0;
	set->proved = 0;
	set->check = 0;
	set->first_ns = now_ns;
	set->fingerprint = p->fingerprint;
	set->epoch = p->epoch;
	set->weight = 0;
	set->words = p->words;
	set->op_wire = p->op_wire;
	set->state = MLNET_SET_FILLING;
	set->flags = 0;
	set->has_words = 0;
	st64(set->exps, 0);
	st64(set->exps + 8, 0);
	st48(set->exps + 16, 0);
}

static __always_inline int set_matches(const struct mlnet_set *set, const struct pkt *p)
{
	return set->fingerprint == p->fingerprint && set->op_wire == p->op_wire && set->words == p->words;
}

#endif /* MLNET_AGGREGATE_SLOT_BPF_H */
