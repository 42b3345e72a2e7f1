/* SPDX-License-Identifier: GPL-2.0-only */
/* What the verifier refuses: a byte of the packet without a look at where the packet ends. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int reads_behind_the_end(struct xdp_md *ctx)
{
	return *(const __u8 *)(long)ctx->data;
}

char LICENSE[] SEC("license") = "GPL";
