// SPDX-License-Identifier: Apache-2.0
// Highway compiles the part between the HWY_NAMESPACE lines once per instruction set.
#include "mlnet-perf/half.h"

#include <array>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mlnet-perf/half.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mlnet::perf {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using HalfTag = hn::Rebind<hwy::float16_t, FloatTag>;
using BitsTag = hn::Rebind<uint16_t, FloatTag>;

hn::VFromD<FloatTag> Load(const uint16_t* from) {
  return hn::PromoteTo(FloatTag(), hn::BitCast(HalfTag(), hn::LoadU(BitsTag(), from)));
}

void Store(hn::VFromD<FloatTag> value, uint16_t* to) {
  hn::StoreU(hn::BitCast(BitsTag(), hn::DemoteTo(HalfTag(), value)), BitsTag(), to);
}

size_t Width() { return hn::Lanes(FloatTag()); }

// REQUIRES of all three: count is a multiple of Width().
void Narrow(const float* from, uint16_t* to, size_t count) {
  for (size_t i = 0; i < count; i += Width()) Store(hn::LoadU(FloatTag(), from + i), to + i);
}

void Widen(const uint16_t* from, float* to, size_t count) {
  for (size_t i = 0; i < count; i += Width()) hn::StoreU(Load(from + i), FloatTag(), to + i);
}

void Add(uint16_t* c, const uint16_t* a, const uint16_t* b, size_t count) {
  for (size_t i = 0; i < count; i += Width()) Store(hn::Add(Load(a + i), Load(b + i)), c + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace mlnet::perf
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mlnet::perf {

HWY_EXPORT(Narrow);
HWY_EXPORT(Widen);
HWY_EXPORT(Add);

namespace {

constexpr size_t kWidthMost = 16;

size_t Whole(size_t count) { return count - count % kWidthMost; }

// The elements behind the last whole vector, padded with zeros.
template <typename T>
std::array<T, kWidthMost> Rest(const T* from, size_t count) {
  std::array<T, kWidthMost> rest{};
  std::memcpy(rest.data(), from + Whole(count), (count - Whole(count)) * sizeof(T));
  return rest;
}

template <typename T>
void StoreRest(const std::array<T, kWidthMost>& rest, T* to, size_t count) {
  std::memcpy(to + Whole(count), rest.data(), (count - Whole(count)) * sizeof(T));
}

}  // namespace

void NarrowToHalf(const float* from, uint16_t* to, size_t count) {
  HWY_DYNAMIC_DISPATCH(Narrow)(from, to, Whole(count));
  if (Whole(count) == count) return;
  const auto rest = Rest(from, count);
  std::array<uint16_t, kWidthMost> narrow;
  HWY_DYNAMIC_DISPATCH(Narrow)(rest.data(), narrow.data(), kWidthMost);
  StoreRest(narrow, to, count);
}

void WidenFromHalf(const uint16_t* from, float* to, size_t count) {
  HWY_DYNAMIC_DISPATCH(Widen)(from, to, Whole(count));
  if (Whole(count) == count) return;
  const auto rest = Rest(from, count);
  std::array<float, kWidthMost> wide;
  HWY_DYNAMIC_DISPATCH(Widen)(rest.data(), wide.data(), kWidthMost);
  StoreRest(wide, to, count);
}

void AddHalf(uint16_t* c, const uint16_t* a, const uint16_t* b, size_t count) {
  HWY_DYNAMIC_DISPATCH(Add)(c, a, b, Whole(count));
  if (Whole(count) == count) return;
  auto left = Rest(a, count);
  const auto right = Rest(b, count);
  HWY_DYNAMIC_DISPATCH(Add)(left.data(), left.data(), right.data(), kWidthMost);
  StoreRest(left, c, count);
}

}  // namespace mlnet::perf
#endif
