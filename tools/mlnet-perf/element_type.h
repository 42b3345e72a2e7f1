// SPDX-License-Identifier: Apache-2.0
// The element types that are measured: names, sizes, and how to read and write one element. Nothing of this
// comes from libmlnet, which is what is checked with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mlnet/communicator.h"

namespace mlnet::perf {

struct ElementType {
  DataType dtype;
  const char* name;
  size_t bytes;
  int digits;        // bits of a float's significand, the hidden one included; 0: an integer
  int min_exponent;  // as frexp has it, of the smallest normal float
  bool is_signed;

  bool IsFloat() const { return digits > 0; }
};

const ElementType& TypeOf(DataType dtype);
/// Null if there is no such type.
const ElementType* FindType(const std::string& name);
std::vector<std::string> TypeNames();

/// The low bytes of `bits` as the integer type has them: sums wrap like this.
int64_t Wrap(const ElementType& type, uint64_t bits);

double LoadFloat(const ElementType& type, const void* values, size_t index);
int64_t LoadInteger(const ElementType& type, const void* values, size_t index);

/// REQUIRES: the type can hold the value; float16 and bfloat16 are not rounded here.
void StoreFloat(const ElementType& type, double value, void* values, size_t index);
void StoreInteger(const ElementType& type, int64_t value, void* values, size_t index);

}  // namespace mlnet::perf
