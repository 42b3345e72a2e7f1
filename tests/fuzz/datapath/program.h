/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MLNET_FUZZ_PROGRAM_H
#define MLNET_FUZZ_PROGRAM_H

#include <linux/bpf.h>
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct program_map {
	const char *name; /* 0: the last one */
	const void *symbol;
};

extern const struct program_map program_maps[];

/* What ml_programs holds. */
int (*program_at(__u32 index))(struct xdp_md *);

int ml_ingress(struct xdp_md *ctx);
int ml_mac_check(struct xdp_md *ctx);
int ml_egress(struct xdp_md *ctx);

#ifdef __cplusplus
}
#endif

#endif /* MLNET_FUZZ_PROGRAM_H */
