/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's header, but for the context: on the host its pointers have 64 bits. */
#ifndef MLNET_FUZZ_LINUX_BPF_H
#define MLNET_FUZZ_LINUX_BPF_H

#define xdp_md xdp_md_of_the_kernel
#include_next <linux/bpf.h>
#undef xdp_md

struct xdp_md {
	unsigned long data, data_end, data_meta;
};

#endif /* MLNET_FUZZ_LINUX_BPF_H */
