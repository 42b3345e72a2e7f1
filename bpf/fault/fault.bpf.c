// SPDX-License-Identifier: GPL-2.0-only
// The lab's own programs; they never run on a production host.
// lab_pass: on the switch end of a host's veth pair. XDP_TX and redirect of the host are lost unless its peer has a
// program; and with one there, the host's stack segments its super-packets, so that every frame is one frame.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("xdp")
int lab_pass(struct xdp_md *ctx __attribute__((unused)))
{
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
