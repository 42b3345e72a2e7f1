/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tag of a job whose packets are authenticated; WIRE_FORMAT.md ("Tag") specifies it and says what it promises.
 *   tag = SipHash-2-4(key.sip; h0, h1, h2, NH(key.nh; trailer, payload), addresses)
 * The functions are the definition for both compilers: mlnetd and libmlnet make with them what the XDP programs check.
 */
#ifndef MLNET_ABI_MAC_H
#define MLNET_ABI_MAC_H

#include "wire.h"

#define MLNET_MAC_BYTES 8 /* behind the trailer */
#define MLNET_NH_TRAILER_WORDS 6 /* check, bitmap, weight + 2^16 * reserved, exps 0-7, 8-15, 16-21 */
#define MLNET_NH_KEY_WORDS (MLNET_NH_TRAILER_WORDS + MLNET_WORDS_MAX + 1) /* the second hash begins one word later */

/* Of one epoch of a job. In ml_keys, which only mlnetd opens. */
struct mlnet_key {
	__u64 sip[2];
	__u64 nh[MLNET_NH_KEY_WORDS]; /* for the trailer's words, then the payload's */
};

/* Key of ml_keys. */
#define MLNET_KEY_ID(job, epoch) ((__u32)(job) | (__u32)(epoch) << 16)

/* Two NH hashes with shifted keys (Toeplitz): one alone collides once in 2^32, both together once in 2^64. */
struct mlnet_nh {
	__u64 sum[2];
};

#define MLNET_INLINE static inline __attribute__((always_inline))

/* One word of a hash: the product of its two halves, to each of which the key's is added modulo 2^32. */
MLNET_INLINE __u64 mlnet_nh_word(__u64 m, __u64 k)
{
	return (__u64)((__u32)m + (__u32)k) * ((__u32)(m >> 32) + (__u32)(k >> 32));
}

MLNET_INLINE void mlnet_nh_add(struct mlnet_nh *nh, __u64 m, const __u64 *key)
{
	nh->sum[0] += mlnet_nh_word(m, key[0]);
	nh->sum[1] += mlnet_nh_word(m, key[1]);
}

struct mlnet_sip {
	__u64 v0, v1, v2, v3;
};

#define MLNET_ROTATE(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))

MLNET_INLINE void mlnet_sip_round(struct mlnet_sip *s)
{
	s->v0 += s->v1;
	s->v2 += s->v3;
	s->v1 = MLNET_ROTATE(s->v1, 13) ^ s->v0;
	s->v3 = MLNET_ROTATE(s->v3, 16) ^ s->v2;
	s->v0 = MLNET_ROTATE(s->v0, 32);
	s->v2 += s->v1;
	s->v0 += s->v3;
	s->v1 = MLNET_ROTATE(s->v1, 17) ^ s->v2;
	s->v3 = MLNET_ROTATE(s->v3, 21) ^ s->v0;
	s->v2 = MLNET_ROTATE(s->v2, 32);
}

MLNET_INLINE void mlnet_sip_begin(struct mlnet_sip *s, const __u64 key[2])
{
	s->v0 = key[0] ^ 0x736f6d6570736575ULL;
	s->v1 = key[1] ^ 0x646f72616e646f6dULL;
	s->v2 = key[0] ^ 0x6c7967656e657261ULL;
	s->v3 = key[1] ^ 0x7465646279746573ULL;
}

MLNET_INLINE void mlnet_sip_word(struct mlnet_sip *s, __u64 m)
{
	s->v3 ^= m;
	mlnet_sip_round(s);
	mlnet_sip_round(s);
	s->v0 ^= m;
}

/* `last`: the bytes behind the last whole word, and the count of all bytes in bits 56 to 63. */
MLNET_INLINE __u64 mlnet_sip_end(struct mlnet_sip *s, __u64 last)
{
	mlnet_sip_word(s, last);
	s->v2 ^= 0xff;
	mlnet_sip_round(s);
	mlnet_sip_round(s);
	mlnet_sip_round(s);
	mlnet_sip_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

/* What a tag covers beside the hash: the header, and the addresses of this hop as they are in the IP header. */
struct mlnet_mac_input {
	__u64 h[3]; /* header bytes 0-7, 8-15, 16-21 */
	struct mlnet_nh nh;
	__u64 address[4]; /* IPv4: source, and destination in the upper half; IPv6: source and destination, 16 bytes each */
};

MLNET_INLINE __u64 mlnet_mac_tag(const struct mlnet_key *key, const struct mlnet_mac_input *in, int is_ipv6)
{
	struct mlnet_sip s;

	mlnet_sip_begin(&s, key->sip);
	mlnet_sip_word(&s, in->h[0]);
	mlnet_sip_word(&s, in->h[1]);
	mlnet_sip_word(&s, in->h[2]);
	mlnet_sip_word(&s, in->nh.sum[0]);
	mlnet_sip_word(&s, in->nh.sum[1]);
	mlnet_sip_word(&s, in->address[0]);
	if (!is_ipv6)
		return mlnet_sip_end(&s, 48ULL << 56);
	mlnet_sip_word(&s, in->address[1]);
	mlnet_sip_word(&s, in->address[2]);
	mlnet_sip_word(&s, in->address[3]);
	return mlnet_sip_end(&s, 72ULL << 56);
}

MLNET_STATIC_ASSERT(sizeof(struct mlnet_key) == 16 + 359 * 8, "key layout");

#endif /* MLNET_ABI_MAC_H */
