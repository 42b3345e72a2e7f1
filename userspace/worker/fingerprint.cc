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
  }
  return "?";
}

}  // namespace

uint32_t Fingerprint(const CollectiveSpec& spec) {
  const bool is_reduce = spec.kind == CollectiveKind::kAllReduce;
  uint64_t hash = Mix64(static_cast<uint64_t>(spec.kind) + 1);
  hash = Mix64(hash ^ (is_reduce ? static_cast<uint64_t>(spec.dtype) + 1 : 0));
  hash = Mix64(hash ^ (is_reduce ? static_cast<uint64_t>(spec.op) + 1 : 0));
  hash = Mix64(hash ^ spec.count);
  hash = Mix64(hash ^ (spec.kind == CollectiveKind::kBroadcast ? static_cast<uint64_t>(spec.root) + 1 : 0));
  const auto folded = static_cast<uint32_t>(hash ^ (hash >> 32));
  return folded != 0 ? folded : 1;
}

std::string DescribeSpec(const CollectiveSpec& spec) {
  std::string text = KindName(spec.kind);
  if (spec.kind == CollectiveKind::kAllReduce) {
    text += spec.dtype == DataType::kFloat32 ? " float32 sum" : " int32 sum";
    return text + " count=" + std::to_string(spec.count);
  }
  if (spec.kind != CollectiveKind::kBarrier) text += " bytes=" + std::to_string(spec.count);
  if (spec.kind == CollectiveKind::kBroadcast) text += " root=" + std::to_string(spec.root);
  return text;
}

}  // namespace mlnet::worker
