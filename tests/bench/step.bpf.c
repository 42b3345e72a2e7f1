// SPDX-License-Identifier: GPL-2.0-only
/*
 * For the benchmarks: BPF_PROG_TEST_RUN repeats a program on one buffer, and a packet that comes twice is a retry. Here
 * each repeat makes the next packet of a child over what the last one left, as if it had arrived, and runs the
 * program under test on it. The payload stays; its sum is what the old check word holds beside the old mix.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include <mlnet/job.h>

#include "step.h"
#include "aggregate/check.bpf.h"

const volatile struct mlnet_cfg ml_cfg = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bench_step);
} bench_steps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} bench_programs SEC(".maps");

/* S of the payload, from the packet as the last run left it. */
static __always_inline __u64 sum_kept(const void *header, const void *trailer)
{
	struct trailer_words t;
	__u64 check;

	trailer_load(trailer, &t, &check);
	return check - check_mix(ld64(header), ld64(header + 8), ld48(header + 16), &t);
}

static __always_inline void packet_make(void *data, void *trailer, struct bench_step *step)
{
	struct trailer_words t = { step->bitmap, step->weight, step->e0, step->e1, step->e2 };
	void *header = data + header_at(L3_IPV4);
	__u64 sum = sum_kept(header, trailer);
	__u64 seq = step->base + step->at, child = step->child;
	__u64 h0 = step->h0, h1 = (step->h1 + child) | seq << 32, h2 = step->h2 | (seq >> 32 & 0xffff);

	st64(data, step->front[0]);
	st64(data + 6, step->front[1]);
	st64(data + 14, step->front[2]);
	st64(data + 22, step->front[3] + (child << 56));
	st64(data + 30, step->front[4]);
	st32(data + 38, (__u32)step->udp_rest);
	st64(header, h0);
	st64(header + 8, h1);
	st48(header + 16, h2);
	trailer_store(trailer, &t, sum + check_mix(h0, h1, h2, &t));
}

static __always_inline void step_on(struct bench_step *step)
{
	if (++step->at < step->slots)
		return;
	step->at = 0;
	if (++step->child < step->children)
		return;
	step->child = 0;
	step->base += step->slots;
}

SEC("xdp")
int bench_next(struct xdp_md *ctx)
{
	struct bench_step *step;
	void *data, *data_end;
	__u32 zero = 0, at;

	step = bpf_map_lookup_elem(&bench_steps, &zero);
	if (!step)
		return XDP_ABORTED;
	if ((void *)(long)ctx->data_meta + sizeof(struct mlnet_fan_meta) <= (void *)(long)ctx->data) /* it left as copies */
		bpf_xdp_adjust_meta(ctx, sizeof(struct mlnet_fan_meta));
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	at = masked(step->trailer_at, 2047);
	if (!fits(data, payload_at(L3_IPV4), data_end) || !fits(data + at, TRAILER_BYTES, data_end))
		return XDP_ABORTED;
	packet_make(data, data + at, step);
	step_on(step);
	bpf_tail_call(ctx, &bench_programs, step->program);
	return XDP_ABORTED;
}

SEC("xdp")
int bench_empty(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_DROP;
}

SEC("tc")
int bench_empty_tc(struct __sk_buff *skb)
{
	(void)skb;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
