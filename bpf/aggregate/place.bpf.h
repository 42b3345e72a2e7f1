/* SPDX-License-Identifier: GPL-2.0-only */
/* Which slot and which words a packet's seq has at this node. */
#ifndef MLNET_AGGREGATE_PLACE_BPF_H
#define MLNET_AGGREGATE_PLACE_BPF_H

#include "maps.bpf.h"
#include "../lib/parse.bpf.h"

/* A seq's slot and words. */
struct place {
	struct mlnet_slot *slot;
	struct mlnet_words *words;
	__u64 slots;
	__u32 set_index;
};

static __always_inline int place_is_there(const struct place *place)
{
	return place->slot && place->words;
}

/* Where the packet's seq has its slot and words; 0: there is no such pool. */
static __always_inline int place_find(const struct pkt *p, const struct mlnet_node *node, struct place *place)
{
	const struct mlnet_pool *pool = &node->pools[masked(p->class_stream, MLNET_POOLS_MAX - 1)];
	__u32 log2_slots = pool->log2_slots & 31, words_id = pool->words_id;
	__u32 index = p->seq & ((1ULL << log2_slots) - 1), set_index = (p->seq >> log2_slots) & 1;
	__u32 slot_key = pool->slot_base + index, words_key = index * 2 + set_index;
	void *words_map = bpf_map_lookup_elem(&ml_words, &words_id);

	place->slot = bpf_map_lookup_elem(&ml_slots, &slot_key);
	place->words = words_map ? bpf_map_lookup_elem(words_map, &words_key) : NULL;
	place->set_index = set_index;
	place->slots = 1ULL << log2_slots;
	return place_is_there(place);
}

#endif /* MLNET_AGGREGATE_PLACE_BPF_H */
