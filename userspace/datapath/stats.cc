// SPDX-License-Identifier: Apache-2.0
#include "datapath/stats.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cerrno>
#include <vector>

#include "base/errno_error.h"

namespace mlnet::datapath {
namespace {

static_assert(sizeof(mlnet_stats) % 8 == 0, "the kernel pads per-CPU values to 8 bytes");

size_t NumCpus() { return static_cast<size_t>(libbpf_num_possible_cpus()); }

}  // namespace

void AddStats(mlnet_stats& a, const mlnet_stats& b) {
  for (unsigned v = 0; v < MLNET_VERDICTS_MAX; ++v) a.verdicts[v] += b.verdicts[v];
  a.bytes_in += b.bytes_in;
  a.words_summed += b.words_summed;
  a.contributions += b.contributions;
  a.results += b.results;
}

Result<mlnet_stats> ReadStats(const Program& program, uint32_t id) {
  std::vector<mlnet_stats> per_cpu(NumCpus());
  if (bpf_map_lookup_elem(program.MapFd("ml_stats"), &id, per_cpu.data()) != 0) {
    return tl::make_unexpected(ErrnoError("read ml_stats", errno));
  }
  mlnet_stats total{};
  for (const mlnet_stats& one : per_cpu) AddStats(total, one);
  return total;
}

Result<void> ClearStats(const Program& program, uint32_t id) {
  const std::vector<mlnet_stats> zero(NumCpus());
  if (bpf_map_update_elem(program.MapFd("ml_stats"), &id, zero.data(), BPF_ANY) != 0) {
    return tl::make_unexpected(ErrnoError("clear ml_stats", errno));
  }
  return {};
}

Result<mlnet_link> ReadLink(const Program& program, uint32_t index) {
  mlnet_link link{};
  if (bpf_map_lookup_elem(program.MapFd("ml_links"), &index, &link) != 0) {
    return tl::make_unexpected(ErrnoError("read ml_links", errno));
  }
  return link;
}

}  // namespace mlnet::datapath
