// SPDX-License-Identifier: Apache-2.0
#include "elements.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace mlnet::worker {
namespace {

constexpr uint32_t kSign = 0x80000000U;
constexpr uint32_t kInfinity = 0x7f800000U;

float FloatOfHalf(uint16_t half) {
  const uint32_t sign = (half & 0x8000U) << 16, magnitude = half & 0x7fffU;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | kInfinity | (magnitude & 0x3ff) << 13);
  // The exponent field read as float32's is 112 too small; the product is exact, subnormals included.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | sign);
}

uint16_t HalfOfFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits & kSign) >> 16);
  const uint32_t magnitude = bits & ~kSign;
  if (magnitude > kInfinity) return sign | 0x7e00;
  if (magnitude >= 0x477ff000U) return sign | 0x7c00;  // 65520 and more round to infinity
  if (magnitude < 0x38800000U) {                       // below 2^-14: a multiple of 2^-24
    // Adding 0.5 puts the unit in the last place of float32 at 2^-24, and rounds there.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000U));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
}

uint16_t BrainOfFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & ~kSign) > kInfinity) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t Load16(const void* from, size_t i) {
  uint16_t value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + 2 * i, 2);
  return value;
}

}  // namespace

void LoadFloats(DataType dtype, const void* from, size_t count, float* to) {
  if (dtype == DataType::kFloat32) {
    std::memcpy(to, from, count * sizeof(float));
  } else if (dtype == DataType::kBFloat16) {
    for (size_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(uint32_t{Load16(from, i)} << 16);
  } else {
    for (size_t i = 0; i < count; ++i) to[i] = FloatOfHalf(Load16(from, i));
  }
}

void StoreFloats(DataType dtype, const float* from, size_t count, void* to) {
  if (dtype == DataType::kFloat32) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  const bool is_brain = dtype == DataType::kBFloat16;
  for (size_t i = 0; i < count; ++i) {
    const uint16_t value = is_brain ? BrainOfFloat(from[i]) : HalfOfFloat(from[i]);
    std::memcpy(static_cast<std::byte*>(to) + 2 * i, &value, 2);
  }
}

}  // namespace mlnet::worker
