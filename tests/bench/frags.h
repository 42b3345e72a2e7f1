/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* What frags.bpf.c and frags.cc agree on. */
#ifndef MLNET_BENCH_FRAGS_H
#define MLNET_BENCH_FRAGS_H

#define FRAGS_BLOCK_WORDS 16
#define FRAGS_BLOCK_BYTES (8 * FRAGS_BLOCK_WORDS)
#define FRAGS_BLOCKS 69 /* of an MTU of 9000 */
#define FRAGS_SLOTS 64
#define FRAGS_NO_SUM 0x5eedULL /* of all words: never that of the benchmark's payload, which clang does not know */

#endif
