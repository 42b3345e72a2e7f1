// SPDX-License-Identifier: GPL-2.0-only
/*
 * For the benchmark of packets in fragments (an MTU beyond a page): the work of a last contribution by itself, verify, add,
 * sum written over the packet, once where the packet lies and once by a copy. Fragments have no direct access.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "frags.h"

struct frags_payload {
	__u64 words[FRAGS_BLOCKS * FRAGS_BLOCK_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FRAGS_SLOTS);
	__type(key, __u32);
	__type(value, struct frags_payload);
} frags_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct frags_payload);
} frags_scratch SEC(".maps");

static __u32 frags_turn;

static __always_inline struct frags_payload *next_slot(void)
{
	__u32 at = frags_turn++ % FRAGS_SLOTS;

	return bpf_map_lookup_elem(&frags_slots, &at);
}

static __always_inline __u64 block_fold(const __u64 *block)
{
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < FRAGS_BLOCK_WORDS; ++i)
		sum += block[i];
	return sum;
}

static __always_inline void block_add(__u64 *slot, __u64 *block)
{
#pragma unroll
	for (int i = 0; i < FRAGS_BLOCK_WORDS; ++i) {
		__u64 sum = slot[i] + block[i];

		slot[i] = sum;
		block[i] = sum;
	}
}

SEC("xdp")
int frags_direct(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct frags_payload *slot = next_slot();
	__u64 sum = 0;

	if (!slot)
		return XDP_ABORTED;
	for (__u32 i = 0; i < FRAGS_BLOCKS; ++i) {
		__u64 *block = data + i * FRAGS_BLOCK_BYTES;

		if ((void *)block + FRAGS_BLOCK_BYTES > data_end)
			break;
		sum += block_fold(block);
	}
	if (sum == FRAGS_NO_SUM)
		return XDP_ABORTED;
	for (__u32 i = 0; i < FRAGS_BLOCKS; ++i) {
		__u64 *block = data + i * FRAGS_BLOCK_BYTES;

		if ((void *)block + FRAGS_BLOCK_BYTES > data_end)
			break;
		block_add(slot->words + i * FRAGS_BLOCK_WORDS, block);
	}
	return XDP_DROP;
}

SEC("xdp.frags")
int frags_copied(struct xdp_md *ctx)
{
	__u64 bytes = bpf_xdp_get_buff_len(ctx), blocks = bytes / FRAGS_BLOCK_BYTES, sum = 0;
	struct frags_payload *slot = next_slot(), *copy;
	__u32 zero = 0;

	copy = bpf_map_lookup_elem(&frags_scratch, &zero);
	if (!slot || !copy || bytes == 0 || bytes > sizeof(*copy))
		return XDP_ABORTED;
	if (bpf_xdp_load_bytes(ctx, 0, copy, bytes))
		return XDP_ABORTED;
	for (__u32 i = 0; i < FRAGS_BLOCKS && i < blocks; ++i)
		sum += block_fold(copy->words + i * FRAGS_BLOCK_WORDS);
	if (sum == FRAGS_NO_SUM)
		return XDP_ABORTED;
	for (__u32 i = 0; i < FRAGS_BLOCKS && i < blocks; ++i)
		block_add(slot->words + i * FRAGS_BLOCK_WORDS, copy->words + i * FRAGS_BLOCK_WORDS);
	if (bpf_xdp_store_bytes(ctx, 0, copy, bytes))
		return XDP_ABORTED;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "GPL";
