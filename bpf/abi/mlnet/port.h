/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What both compilers need to read the same header: the ABI is compiled by clang for BPF and by a
 * C++20 compiler for user space. This is the only place that knows which one is at work.
 */
#ifndef MLNET_ABI_PORT_H
#define MLNET_ABI_PORT_H

#include <linux/bpf.h>
#include <linux/types.h>

#ifdef __cplusplus
#define MLNET_STATIC_ASSERT(cond, msg) static_assert(cond, msg)
#else
#define MLNET_STATIC_ASSERT(cond, msg) _Static_assert(cond, msg)
#endif

#define MLNET_PACKED __attribute__((packed))
#define MLNET_ALIGNED(n) __attribute__((aligned(n)))

#endif /* MLNET_ABI_PORT_H */
