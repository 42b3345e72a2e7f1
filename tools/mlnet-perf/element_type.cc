// SPDX-License-Identifier: Apache-2.0
#include "mlnet-perf/element_type.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

namespace mlnet::perf {
namespace {

constexpr ElementType kTypes[] = {
    {DataType::kFloat32, "float32", 4, 24, -125, true}, {DataType::kFloat64, "float64", 8, 53, -1021, true},
    {DataType::kFloat16, "float16", 2, 11, -13, true},  {DataType::kBFloat16, "bfloat16", 2, 8, -125, true},
    {DataType::kInt8, "int8", 1, 0, 0, true},           {DataType::kUint8, "uint8", 1, 0, 0, false},
    {DataType::kInt16, "int16", 2, 0, 0, true},         {DataType::kInt32, "int32", 4, 0, 0, true},
    {DataType::kInt64, "int64", 8, 0, 0, true},
};

static_assert(std::endian::native == std::endian::little, "an element's low bytes come first");

uint64_t LoadBits(const ElementType& type, const void* values, size_t index) {
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const std::byte*>(values) + index * type.bytes, type.bytes);
  return bits;
}

void StoreBits(const ElementType& type, uint64_t bits, void* values, size_t index) {
  std::memcpy(static_cast<std::byte*>(values) + index * type.bytes, &bits, type.bytes);
}

double DecodeFloat16(uint64_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
  const double sign = (bits >> 15 & 1) != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

uint64_t EncodeFloat16(double value) {
  const uint64_t sign = std::signbit(value) ? 0x8000 : 0;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);
  if (value == 0 || exponent < -13) return sign | static_cast<uint64_t>(std::ldexp(std::fabs(value), 24));
  // frexp's fraction is 1/2 .. 1, so the hidden bit is 1024 of 2048.
  return sign | static_cast<uint64_t>(exponent + 14) << 10 | (static_cast<uint64_t>(fraction * 2048) - 1024);
}

}  // namespace

const ElementType& TypeOf(DataType dtype) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [dtype](const ElementType& type) { return type.dtype == dtype; });
  return found != std::end(kTypes) ? *found : kTypes[0];
}

const ElementType* FindType(const std::string& name) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&name](const ElementType& type) { return type.name == name; });
  return found != std::end(kTypes) ? found : nullptr;
}

std::vector<std::string> TypeNames() {
  std::vector<std::string> names;
  for (const ElementType& type : kTypes) names.emplace_back(type.name);
  return names;
}

int64_t Wrap(const ElementType& type, uint64_t bits) {
  const int shift = 64 - 8 * static_cast<int>(type.bytes);
  bits <<= shift;
  return type.is_signed ? static_cast<int64_t>(bits) >> shift : static_cast<int64_t>(bits >> shift);
}

double LoadFloat(const ElementType& type, const void* values, size_t index) {
  const uint64_t bits = LoadBits(type, values, index);
  switch (type.dtype) {
    case DataType::kFloat64:
      return std::bit_cast<double>(bits);
    case DataType::kFloat16:
      return DecodeFloat16(bits);
    case DataType::kBFloat16:
      return std::bit_cast<float>(static_cast<uint32_t>(bits << 16));
    default:
      return std::bit_cast<float>(static_cast<uint32_t>(bits));
  }
}

int64_t LoadInteger(const ElementType& type, const void* values, size_t index) {
  return Wrap(type, LoadBits(type, values, index));
}

void StoreFloat(const ElementType& type, double value, void* values, size_t index) {
  const uint64_t float32 = std::bit_cast<uint32_t>(static_cast<float>(value));
  switch (type.dtype) {
    case DataType::kFloat64:
      return StoreBits(type, std::bit_cast<uint64_t>(value), values, index);
    case DataType::kFloat16:
      return StoreBits(type, EncodeFloat16(value), values, index);
    case DataType::kBFloat16:
      return StoreBits(type, float32 >> 16, values, index);
    default:
      return StoreBits(type, float32, values, index);
  }
}

void StoreInteger(const ElementType& type, int64_t value, void* values, size_t index) {
  StoreBits(type, static_cast<uint64_t>(value), values, index);
}

}  // namespace mlnet::perf
