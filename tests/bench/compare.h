// SPDX-License-Identifier: Apache-2.0
// What the kernel's figures are compared with: the same bytes added and copied in user space, in the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mlnet::bench {

/// to[i] += from[i] with 256-bit vectors. REQUIRES: words % 16 == 0, a processor with AVX2.
void AddAvx2(uint64_t* to, const uint64_t* from, size_t words);

double MedianOf(std::vector<double> values);

/// Seconds per packet of adding (copying) one packet of `words` to each of `packets` in turn, as a pool of slots has them.
class UserSpace {
 public:
  UserSpace(size_t words, size_t packets);
  double AddSeconds();
  double CopySeconds();

 private:
  size_t words_, packets_;
  std::vector<uint64_t> packet_, pool_;
};

}  // namespace mlnet::bench
