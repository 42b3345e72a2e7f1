// SPDX-License-Identifier: Apache-2.0
// The tag of WIRE_FORMAT.md once more, for tests: from its definition, byte by byte and with long arithmetic, without any of
// the code that it is compared with.
#pragma once

#include <cstdint>
#include <span>

#include "mlnet/mac.h"

namespace mlnet::test {

/// SipHash-2-4 (Aumasson and Bernstein) of a byte string.
uint64_t ReferenceSip(uint64_t key0, uint64_t key1, std::span<const uint8_t> bytes);

/// NH (RFC 4418) of 64-bit words, each with one word of the key.
uint64_t ReferenceNh(std::span<const uint64_t> words, const __u64* key);

/// Of an Ethernet frame up to the end of its trailer.
uint64_t ReferenceTag(const mlnet_key& key, std::span<const uint8_t> frame);

/// Words that follow from `seed`.
mlnet_key TestKey(uint64_t seed);

}  // namespace mlnet::test
