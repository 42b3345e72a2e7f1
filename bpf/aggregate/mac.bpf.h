/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tag of jobs whose packets are authenticated (<mlnet/mac.h>): looked at beside the check word before a packet
 * changes anything, and made anew for what leaves, which has another header and other addresses.
 * Why programs of their own, reached by tail calls: ml_ingress has no stack left, and the verifier counts each apart.
 */
#ifndef MLNET_AGGREGATE_MAC_BPF_H
#define MLNET_AGGREGATE_MAC_BPF_H

#include <mlnet/mac.h>

#include "check.bpf.h"
#include "maps.bpf.h"

/* By MLNET_KEY_ID. Not preallocated: few jobs have one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MLNET_KEYS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct mlnet_key);
} ml_keys SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mlnet_mac_state);
} ml_mac_state SEC(".maps");

/* A frame whose tag is to be made or looked at. */
struct tagged {
	const struct mlnet_key *key;
	void *trailer;
	void *data_end;
	struct mlnet_mac_input in;
	__u32 blocks;
	__u32 payload_at;
};

static __always_inline void mac_addresses(enum l3 l3, const void *data, struct mlnet_mac_input *in)
{
	struct addr source = ip_source(l3, data), destination = ip_destination(l3, data);

	in->address[0] = l3 == L3_IPV6 ? source.high : source.low | destination.low << 32;
	in->address[1] = source.low;
	in->address[2] = destination.high;
	in->address[3] = destination.low;
}

/* 0: too short, or of a job and epoch without a key. */
static __always_inline int tagged_find(struct xdp_md *ctx, enum l3 l3, struct tagged *f)
{
	void *data = (void *)(long)ctx->data, *header = data + header_at(l3);
	__u32 id, words;

	f->data_end = (void *)(long)ctx->data_end;
	f->payload_at = payload_at(l3);
	if (!fits(data, f->payload_at, f->data_end))
		return 0;
	f->in.h[0] = ld64(header);
	f->in.h[1] = ld64(header + 8);
	f->in.h[2] = ld48(header + 16);
	mac_addresses(l3, data, &f->in);
	words = f->in.h[1] >> 16 & 0xffff;
	f->blocks = f->in.h[1] >> 8 & MLNET_F_NO_PAYLOAD ? 0 : masked(words / MLNET_BLOCK_WORDS, BLOCKS_MASK);
	f->trailer = data + f->payload_at + f->blocks * MLNET_BLOCK_BYTES;
	id = MLNET_KEY_ID(f->in.h[0] >> 16 & 0xffff, f->in.h[0] >> 32 & 0xffff);
	f->key = bpf_map_lookup_elem(&ml_keys, &id);
	return f->key && fits(f->trailer, TRAILER_BYTES + MLNET_MAC_BYTES, f->data_end);
}

/* The barrier keeps clang from computing the words side by side, which takes more registers than there are. */
static __always_inline void nh_add(struct mlnet_nh *nh, __u64 m, const __u64 *key)
{
	mlnet_nh_add(nh, m, key);
	asm volatile("" : "+r"(nh->sum[0]), "+r"(nh->sum[1]));
}

/* The hash of trailer and payload. */
static __always_inline void tagged_hash(const void *data, struct tagged *f)
{
	const __u64 *block = data + f->payload_at, *key = f->key->nh;
	struct mlnet_nh nh = {};
	struct trailer_words t;
	__u32 n = masked(f->blocks, BLOCKS_MASK);
	__u64 check;

	trailer_load(f->trailer, &t, &check);
	nh_add(&nh, check, key);
	nh_add(&nh, t.bitmap, key + 1);
	nh_add(&nh, t.weight, key + 2);
	nh_add(&nh, t.e0, key + 3);
	nh_add(&nh, t.e1, key + 4);
	nh_add(&nh, t.e2, key + 5);
	key += MLNET_NH_TRAILER_WORDS;
	for (__u32 b = 0; b < MLNET_BLOCKS_MAX; b++) {
		if (b >= n || !fits(block, MLNET_BLOCK_BYTES, f->data_end))
			break;
#pragma unroll
		for (int i = 0; i < MLNET_BLOCK_WORDS; i++)
			nh_add(&nh, block[i], key + i);
		block += MLNET_BLOCK_WORDS;
		key += MLNET_BLOCK_WORDS;
	}
	f->in.nh = nh;
}

/* Whether the frame has the tag that the job's key gives it. */
static __always_inline int tag_is_right(struct xdp_md *ctx, enum l3 l3)
{
	struct tagged f;

	if (!tagged_find(ctx, l3, &f))
		return 0;
	tagged_hash((void *)(long)ctx->data, &f);
	return ld64(f.trailer + TRAILER_BYTES) == mlnet_mac_tag(f.key, &f.in, l3 == L3_IPV6);
}

/* The tag of a frame that is as it leaves. The hash goes with a frame of which there will be copies. 0: no key. */
static __always_inline int tag_set(struct xdp_md *ctx, enum l3 l3)
{
	void *data = (void *)(long)ctx->data;
	struct mlnet_fan_meta *meta = (void *)(long)ctx->data_meta;
	struct tagged f;

	if (!tagged_find(ctx, l3, &f))
		return 0;
	tagged_hash(data, &f);
	st64(f.trailer + TRAILER_BYTES, mlnet_mac_tag(f.key, &f.in, l3 == L3_IPV6));
	if ((void *)(meta + 1) <= data && meta->magic == MLNET_FAN_MAGIC)
		meta->nh = f.in.nh;
	return 1;
}

/* The tag of a copy that has got its destination: `nh` is the hash that all copies share. */
static __always_inline int tag_set_of_copy(struct xdp_md *ctx, enum l3 l3, const struct mlnet_nh *nh)
{
	struct tagged f;

	if (!tagged_find(ctx, l3, &f))
		return 0;
	f.in.nh = *nh;
	st64(f.trailer + TRAILER_BYTES, mlnet_mac_tag(f.key, &f.in, l3 == L3_IPV6));
	return 1;
}

static __always_inline struct mlnet_mac_state *mac_state(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&ml_mac_state, &zero);
}

/* Whether the tag was found right just now, of this packet: nothing else runs on this CPU in between. */
static __always_inline int mac_take(void)
{
	struct mlnet_mac_state *state = mac_state();
	__u32 is_right = state ? state->is_right : 0;

	if (state)
		state->is_right = 0;
	return is_right;
}

/* A packet that ends before its tag is asked for must not leave the next one a right one: its job may have ended meanwhile. */
static __always_inline void mac_forget(const struct pkt *p)
{
	struct mlnet_mac_state *state = p->mac_bytes ? mac_state() : NULL;

	if (state)
		state->is_right = 0;
}

/* What became of a tag that is wrong: damage shows in the check word too. */
static __always_inline enum mlnet_verdict mac_refuse(struct xdp_md *ctx, struct pkt *p)
{
	enum mlnet_verdict verdict = pkt_parse(ctx, p);
	struct trailer_words t;
	struct mlnet_node *node;
	__u64 sum;

	if (verdict)
		return verdict;
	node = node_find(p->job, p->tree);
	if (node)
		p->node_stats_id = node->stats_id;
	return check_verify(p, &t, &sum) ? MLNET_V_DROP_MAC : MLNET_V_DROP_CORRUPT;
}

#endif /* MLNET_AGGREGATE_MAC_BPF_H */
