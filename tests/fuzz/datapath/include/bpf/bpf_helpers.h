/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of libbpf's: maps are names only, helpers are kernel.cc's. */
#ifndef MLNET_FUZZ_BPF_HELPERS_H
#define MLNET_FUZZ_BPF_HELPERS_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <stddef.h>

#define SEC(name)
#define __uint(name, value) char name
#define __type(name, value) value *name
#define __array(name, value) __typeof__(value) *name[]

void *bpf_map_lookup_elem(void *map, const void *key);
#define bpf_spin_lock(lock) host_spin_lock(lock) /* C++ has one name for it and the struct */
void host_spin_lock(struct bpf_spin_lock *lock);
void bpf_spin_unlock(struct bpf_spin_lock *lock);
__u64 bpf_ktime_get_ns(void);
void *bpf_ringbuf_reserve(void *ring, __u64 size, __u64 flags);
void bpf_ringbuf_submit(void *record, __u64 flags);
long bpf_ringbuf_output(void *ring, void *record, __u64 size, __u64 flags);
long bpf_redirect_map(void *map, __u64 key, __u64 flags);
long bpf_xdp_adjust_meta(struct xdp_md *ctx, int delta);
long bpf_xdp_adjust_tail(struct xdp_md *ctx, int delta);
long bpf_tail_call(void *ctx, void *programs, __u32 index); /* comes back only where there is no such program */

#endif /* MLNET_FUZZ_BPF_HELPERS_H */
