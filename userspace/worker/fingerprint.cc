// SPDX-License-Identifier: Apache-2.0
#include "fingerprint.h"

namespace mlnet::worker {
namespace {

// The finalizer of MurmurHash3: a bijection, so that one changed field always changes the value it gets.
constexpr uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

uint32_t Fold(uint64_t hash) {
  const auto folded = static_cast<uint32_t>(hash ^ (hash >> 32));
  return folded != 0 ? folded : 1;
}

const char* KindName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kScatter:
      return "scatter";
    case CollectiveKind::kPush:
      return "push";
    case CollectiveKind::kPull:
      return "pull";
  }
  return "?";
}

}  // namespace

uint32_t Fingerprint(const CollectiveSpec& spec) {
  const bool is_reduction = IsReduction(spec.kind);
  uint64_t hash = Mix64(static_cast<uint64_t>(spec.kind) + 1);
  hash = Mix64(hash ^ (is_reduction ? static_cast<uint64_t>(spec.dtype) + 1 : 0));
  hash = Mix64(hash ^ (is_reduction ? static_cast<uint64_t>(spec.op) + 1 : 0));
  hash = Mix64(hash ^ (is_reduction ? static_cast<uint64_t>(spec.wire) * 2 + (spec.keeps_small ? 2 : 1) : 0));
  hash = Mix64(hash ^ spec.count);
  hash = Mix64(hash ^ (HasRoot(spec.kind) ? static_cast<uint64_t>(spec.root) + 1 : 0));
  return Fold(hash);
}

uint32_t PartFingerprint(uint32_t call, size_t first, size_t count) {
  return Fold(Mix64(Mix64(call ^ Mix64(first + 1)) ^ count));
}

uint32_t RepairFingerprint(uint32_t collective, uint64_t ordinal, size_t repair, uint64_t packets) {
  return Fold(Mix64(Mix64(Mix64(uint64_t{collective} << 8 | repair) ^ ordinal) ^ packets));
}

uint64_t SeedOf(uint64_t job_epoch, int traffic_class, uint64_t ordinal, int rank) {
  return Mix64(Mix64(Mix64(job_epoch << 8 | static_cast<uint64_t>(traffic_class)) ^ ordinal) ^
               (static_cast<uint64_t>(rank) + 1));
}

std::string DescribeSpec(const CollectiveSpec& spec) {
  std::string text = KindName(spec.kind);
  if (IsReduction(spec.kind)) {
    text += std::string(" ") + NameOf(spec.dtype) + " " + NameOf(spec.op);
    if (spec.wire != WireType::kInt32) text += std::string(" as ") + NameOf(spec.wire);
    text += " count=" + std::to_string(spec.count);
  } else if (spec.kind != CollectiveKind::kBarrier) {
    text += " bytes=" + std::to_string(spec.count);
  }
  if (HasRoot(spec.kind)) text += " root=" + std::to_string(spec.root);
  return text;
}

}  // namespace mlnet::worker
