// SPDX-License-Identifier: Apache-2.0
#include "compare.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace mlnet::bench {
namespace {

constexpr size_t kLineWords = 8;  // of a cache line, to which the kernel's words are aligned too

uint64_t* Aligned(std::vector<uint64_t>& words) {
  const auto address = reinterpret_cast<uintptr_t>(words.data());
  return words.data() + (64 - address % 64) % 64 / sizeof(uint64_t);
}

// After a round that is not timed: what ran before has had the caches.
template <typename Work>
double SecondsEach(size_t packets, Work work) {
  const size_t rounds = std::max<size_t>(1, 1024 / packets);
  for (size_t i = 0; i < packets; ++i) work(i);
  const auto start = std::chrono::steady_clock::now();
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < packets; ++i) work(i);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return took.count() / static_cast<double>(packets * rounds);
}

}  // namespace

__attribute__((target("avx2"), noinline)) void AddAvx2(uint64_t* to, const uint64_t* from, size_t words) {
  for (size_t i = 0; i < words; i += 16) {
    for (size_t j = i; j < i + 16; j += 4) {
      auto* sum = reinterpret_cast<__m256i*>(to + j);
      const __m256i addend = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + j));
      _mm256_storeu_si256(sum, _mm256_add_epi64(_mm256_loadu_si256(sum), addend));
    }
  }
}

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

UserSpace::UserSpace(size_t words, size_t packets)
    : words_(words), packets_(packets), packet_(words + kLineWords, 1), pool_(words * packets + kLineWords, 1) {}

double UserSpace::AddSeconds() {
  return SecondsEach(packets_, [this](size_t i) { AddAvx2(Aligned(pool_) + i * words_, Aligned(packet_), words_); });
}

double UserSpace::CopySeconds() {
  return SecondsEach(packets_, [this](size_t i) {
    std::memcpy(Aligned(pool_) + i * words_, Aligned(packet_), words_ * sizeof(uint64_t));
    asm volatile("" : : : "memory");
  });
}

}  // namespace mlnet::bench
