/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Loads and stores of any alignment. Packed structs make clang split a load into bytes; the
 * machines that run this program load unaligned words as fast as aligned ones.
 */
#ifndef MLNET_LIB_BYTES_BPF_H
#define MLNET_LIB_BYTES_BPF_H

#include <linux/types.h>

#ifndef __noinline
#define __noinline __attribute__((noinline))
#endif
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

static __always_inline __u64 ld64(const void *p)
{
	return *(const __u64 *)p;
}

/* A load that clang keeps though nobody wants the word: BPF has no prefetch. */
static __always_inline void ld64_unused(const __u64 *p)
{
	(void)*(const volatile __u64 *)p;
}

static __always_inline __u32 ld32(const void *p)
{
	return *(const __u32 *)p;
}

static __always_inline __u16 ld16(const void *p)
{
	return *(const __u16 *)p;
}

static __always_inline void st64(void *p, __u64 v)
{
	*(__u64 *)p = v;
}

static __always_inline void st32(void *p, __u32 v)
{
	*(__u32 *)p = v;
}

static __always_inline void st16(void *p, __u16 v)
{
	*(__u16 *)p = v;
}

/* Six bytes, zero-extended. */
static __always_inline __u64 ld48(const void *p)
{
	return ld32(p) | ((__u64)ld16(p + 4) << 32);
}

static __always_inline void st48(void *p, __u64 v)
{
	st32(p, (__u32)v);
	st16(p + 4, (__u16)(v >> 32));
}

/*
 * v & mask that clang cannot drop. It knows bounds from earlier branches that the verifier, looking at
 * another register, has not seen: "value is outside of the allowed memory range".
 */
static __always_inline __u32 masked(__u32 v, __u32 mask)
{
	asm volatile("" : "+r"(v));
	return v & mask;
}

/*
 * Whether `bytes` from p on lie in the frame. The barrier keeps clang from rewriting the comparison
 * into arithmetic on data_end, which the verifier forbids.
 */
static __always_inline int fits(const void *p, __u32 bytes, const void *data_end)
{
	asm volatile("" : "+r"(p), "+r"(data_end));
	return p + bytes <= data_end;
}

#endif /* MLNET_LIB_BYTES_BPF_H */
