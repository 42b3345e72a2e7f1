// SPDX-License-Identifier: Apache-2.0
// Which reductions the slot engine has, in torch's terms. README.md's table says the same to users.
#pragma once

#include "mlnet/communicator.h"
#include "torch_compat.h"

namespace mlnet::torch_backend {

struct Reduction {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
};

/// nullopt: not here (products, bits of floats, averages of bool, other types).
inline c10::optional<Reduction> ReductionOf(at::ScalarType type, c10d::ReduceOp::RedOpType op) {
  Reduction reduction;
  switch (type) {
    case at::kFloat: reduction.dtype = DataType::kFloat32; break;
    case at::kDouble: reduction.dtype = DataType::kFloat64; break;
    case at::kHalf: reduction.dtype = DataType::kFloat16; break;
    case at::kBFloat16: reduction.dtype = DataType::kBFloat16; break;
    case at::kChar: reduction.dtype = DataType::kInt8; break;
    case at::kByte: reduction.dtype = DataType::kUint8; break;
    case at::kShort: reduction.dtype = DataType::kInt16; break;
    case at::kInt: reduction.dtype = DataType::kInt32; break;
    case at::kLong: reduction.dtype = DataType::kInt64; break;
    case at::kBool: reduction.dtype = DataType::kBool; break;
    default: return c10::nullopt;
  }
  const bool is_float = at::isFloatingType(type);
  switch (op) {
    case c10d::ReduceOp::SUM: reduction.op = ReduceOp::kSum; return reduction;
    case c10d::ReduceOp::AVG:
      reduction.op = ReduceOp::kSum;
      return type == at::kBool ? c10::optional<Reduction>() : reduction;
    case c10d::ReduceOp::MIN: reduction.op = ReduceOp::kMin; return reduction;
    case c10d::ReduceOp::MAX: reduction.op = ReduceOp::kMax; return reduction;
    case c10d::ReduceOp::PRODUCT:  // of truth values: all of them
      reduction.op = ReduceOp::kBitAnd;
      return type == at::kBool ? reduction : c10::optional<Reduction>();
    case c10d::ReduceOp::BAND: reduction.op = ReduceOp::kBitAnd; break;
    case c10d::ReduceOp::BOR: reduction.op = ReduceOp::kBitOr; break;
    case c10d::ReduceOp::BXOR: reduction.op = ReduceOp::kBitXor; break;
    default: return c10::nullopt;
  }
  return is_float ? c10::optional<Reduction>() : reduction;
}

}  // namespace mlnet::torch_backend
