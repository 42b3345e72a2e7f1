/* SPDX-License-Identifier: GPL-2.0-only */
/* The programs between which the tag of a packet is looked at and made (mac.bpf.h); part of xdp_aggregate.bpf.c. */
#ifndef MLNET_AGGREGATE_MAC_PROGRAMS_BPF_H
#define MLNET_AGGREGATE_MAC_PROGRAMS_BPF_H

/* Back to where it was called from with a tag that is right; the packet ends here otherwise. */
static __always_inline int mac_check(struct xdp_md *ctx, struct pkt *p, __u32 back)
{
	struct mlnet_mac_state *state = mac_state();

	if (!state)
		return XDP_ABORTED;
	if (!tag_is_right(ctx, p->l3))
		return finish(p, mac_refuse(ctx, p), &ml_stats);
	state->is_right = 1;
	bpf_tail_call(ctx, &ml_programs, back);
	state->is_right = 0;
	return finish(p, MLNET_V_UNDECIDED, &ml_stats); /* that program is not there */
}

SEC("xdp")
int ml_mac_check(struct xdp_md *ctx)
{
	struct pkt p = { .l3 = L3_IPV4 }, p6 = { .l3 = L3_IPV6 };

	return frame_is_ipv6(ctx) ? mac_check(ctx, &p6, PROGRAM_INGRESS6) : mac_check(ctx, &p, PROGRAM_INGRESS);
}

SEC("xdp")
int ml_mac_set(struct xdp_md *ctx)
{
	struct mlnet_mac_state *state = mac_state();
	int is_set = frame_is_ipv6(ctx) ? tag_set(ctx, L3_IPV6) : tag_set(ctx, L3_IPV4);

	return is_set && state ? (int)state->action : XDP_DROP;
}

#endif /* MLNET_AGGREGATE_MAC_PROGRAMS_BPF_H */
