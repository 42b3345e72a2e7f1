// SPDX-License-Identifier: GPL-2.0-only
/*
 * What libxdp's dispatcher gets of mlnet, beside the programs of others: hands each packet over to ml_ingress.
 * Why not ml_ingress itself: in the dispatcher it would be an extension, and no kernel takes an extension as what is called by
 * a tail call, as ml_mac_check calls ml_ingress back. And nothing large is verified twice.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "programs.bpf.h"

/* mlnetd puts that of xdp_aggregate.bpf.c in its place. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PROGRAMS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} ml_programs SEC(".maps");

SEC("xdp")
int ml_dispatched(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &ml_programs, PROGRAM_INGRESS);
	return XDP_PASS; /* that program is not there */
}

char LICENSE[] SEC("license") = "GPL";
