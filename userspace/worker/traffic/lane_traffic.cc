// SPDX-License-Identifier: Apache-2.0
#include "traffic/lane_traffic.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "wire/packet.h"

namespace mlnet::worker {
namespace {

// The codings: from the bits of an element to those of a lane, and back.
template <typename U>
struct Plain {
  static U Encode(U bits) { return bits; }
  static U Decode(U bits) { return bits; }
};

template <typename U>
struct Complement {
  static U Encode(U bits) { return static_cast<U>(~bits); }
  static U Decode(U bits) { return static_cast<U>(~bits); }
};

struct Truth {
  static uint8_t Encode(uint8_t bits) { return bits != 0; }
  static uint8_t Decode(uint8_t bits) { return bits != 0; }
};
struct NotTruth {
  static uint8_t Encode(uint8_t bits) { return bits == 0; }
  static uint8_t Decode(uint8_t bits) { return bits == 0; }
};

template <typename U>
inline constexpr U kTop = static_cast<U>(U{1} << (std::numeric_limits<U>::digits - 1));

template <typename U>
struct SignedKey {
  static U Encode(U bits) { return bits ^ kTop<U>; }
  static U Decode(U key) { return key ^ kTop<U>; }
};

// IEEE 754 in sign and magnitude: complement the negative ones, lift the others above them. NaN becomes the
// highest key for both directions, so that it wins; kInfinity is the format's.
template <typename U, U kInfinity, bool kIsMinimum>
struct FloatKey {
  static constexpr U kNanKey = std::numeric_limits<U>::max();
  static constexpr U kQuietNan = kInfinity | static_cast<U>(kInfinity >> 1);
  static U Encode(U bits) {
    if (static_cast<U>(bits & ~kTop<U>) > kInfinity) return kNanKey;
    const U key = (bits & kTop<U>) != 0 ? static_cast<U>(~bits) : static_cast<U>(bits | kTop<U>);
    return kIsMinimum ? static_cast<U>(~key) : key;
  }
  static U Decode(U lane) {
    if (lane == kNanKey) return kQuietNan;
    const U key = kIsMinimum ? static_cast<U>(~lane) : lane;
    return (key & kTop<U>) != 0 ? static_cast<U>(key ^ kTop<U>) : static_cast<U>(~key);
  }
};

// First `Inner`, then the complement: the way of minimum and bitwise and.
template <typename U, typename Inner>
struct Complemented {
  static U Encode(U bits) { return static_cast<U>(~Inner::Encode(bits)); }
  static U Decode(U lane) { return Inner::Decode(static_cast<U>(~lane)); }
};

template <typename U, typename Lane, typename Coding>
LaneCoding Make(mlnet_op op, mlnet_wire wire) {
  return {wire::OpWire(static_cast<uint8_t>(op), static_cast<uint8_t>(wire)), sizeof(Lane),
          [](const void* elements, size_t count, void* lanes) {
            for (size_t i = 0; i < count; ++i) {
              U bits;
              std::memcpy(&bits, static_cast<const std::byte*>(elements) + i * sizeof(U), sizeof(U));
              static_cast<Lane*>(lanes)[i] = Coding::Encode(bits);
            }
          },
          [](const void* lanes, size_t count, void* elements) {
            for (size_t i = 0; i < count; ++i) {
              const U bits = Coding::Decode(static_cast<U>(static_cast<const Lane*>(lanes)[i]));
              std::memcpy(static_cast<std::byte*>(elements) + i * sizeof(U), &bits, sizeof(U));
            }
          }};
}

template <typename U>
constexpr mlnet_op kMaxOp = sizeof(U) == 1   ? MLNET_OP_MAX8
                            : sizeof(U) == 2 ? MLNET_OP_MAX16
                            : sizeof(U) == 4 ? MLNET_OP_MAX32
                                             : MLNET_OP_MAX64;

template <typename U, typename Sum, typename Key>
LaneCoding IntegerCoding(ReduceOp op, mlnet_op add, mlnet_wire wire) {
  switch (op) {
    case ReduceOp::kSum:
      return Make<U, Sum, Plain<U>>(add, wire);
    case ReduceOp::kMax:
      return Make<U, U, Key>(kMaxOp<U>, MLNET_WIRE_KEYS);
    case ReduceOp::kMin:
      return Make<U, U, Complemented<U, Key>>(kMaxOp<U>, MLNET_WIRE_KEYS);
    case ReduceOp::kBitAnd:
      return Make<U, U, Complement<U>>(MLNET_OP_OR, MLNET_WIRE_BITS);
    case ReduceOp::kBitOr:
      return Make<U, U, Plain<U>>(MLNET_OP_OR, MLNET_WIRE_BITS);
    case ReduceOp::kBitXor:
      return Make<U, U, Plain<U>>(MLNET_OP_XOR, MLNET_WIRE_BITS);
  }
  return {};
}

LaneCoding BoolCoding(ReduceOp op) {
  if (op == ReduceOp::kMin || op == ReduceOp::kBitAnd) {
    return Make<uint8_t, uint8_t, NotTruth>(MLNET_OP_OR, MLNET_WIRE_BITS);
  }
  return Make<uint8_t, uint8_t, Truth>(op == ReduceOp::kBitXor ? MLNET_OP_XOR : MLNET_OP_OR, MLNET_WIRE_BITS);
}

template <typename U, U kInfinity>
LaneCoding FloatCoding(ReduceOp op) {
  if (op == ReduceOp::kMax) return Make<U, U, FloatKey<U, kInfinity, false>>(kMaxOp<U>, MLNET_WIRE_KEYS);
  if (op == ReduceOp::kMin) return Make<U, U, FloatKey<U, kInfinity, true>>(kMaxOp<U>, MLNET_WIRE_KEYS);
  return {};
}

}  // namespace

LaneCoding LaneCodingOf(DataType dtype, ReduceOp op) {
  switch (dtype) {
    case DataType::kUint8:  // sums of 64 fit lanes of twice the size, which therefore never carry
      return IntegerCoding<uint8_t, uint16_t, Plain<uint8_t>>(op, MLNET_OP_ADD64, MLNET_WIRE_UINT);
    case DataType::kInt8:
      return IntegerCoding<uint8_t, uint16_t, SignedKey<uint8_t>>(op, MLNET_OP_ADD64, MLNET_WIRE_UINT);
    case DataType::kInt16:
      return IntegerCoding<uint16_t, uint32_t, SignedKey<uint16_t>>(op, MLNET_OP_ADD64, MLNET_WIRE_UINT);
    case DataType::kInt32:
      return IntegerCoding<uint32_t, uint32_t, SignedKey<uint32_t>>(op, MLNET_OP_ADD32, MLNET_WIRE_INT32);
    case DataType::kInt64:
      return IntegerCoding<uint64_t, uint64_t, SignedKey<uint64_t>>(op, MLNET_OP_ADD64, MLNET_WIRE_INT64);
    case DataType::kBool:
      return BoolCoding(op);
    case DataType::kFloat32:
      return FloatCoding<uint32_t, 0x7f800000U>(op);
    case DataType::kFloat64:
      return FloatCoding<uint64_t, 0x7ff0000000000000ULL>(op);
    case DataType::kFloat16:
      return FloatCoding<uint16_t, 0x7c00>(op);
    case DataType::kBFloat16:
      return FloatCoding<uint16_t, 0x7f80>(op);
  }
  return {};
}

LaneTraffic::LaneTraffic(const CollectiveSpec& spec, const JobShape& job)
    : spec_(spec),
      coding_(LaneCodingOf(spec.dtype, spec.op)),
      element_bytes_(SizeOf(spec.dtype)),
      packet_elements_(job.blocks * MLNET_BLOCK_BYTES / coding_.lane_bytes),
      window_(spec, element_bytes_, spec.count) {
  packets_ = CeilDiv(spec.count, packet_elements_);
}

size_t LaneTraffic::ElementsOf(uint64_t packet) const {
  return std::min(packet_elements_, spec_.count - packet * packet_elements_);
}

Shape LaneTraffic::ShapeOf(uint64_t packet) const {
  return {WordsFor(ElementsOf(packet) * coding_.lane_bytes), coding_.op_wire, true};
}

uint8_t LaneTraffic::Fill(uint64_t packet, bool, std::span<uint64_t> words, uint8_t*) {
  const size_t count = ElementsOf(packet);
  const auto* from = static_cast<const std::byte*>(spec_.in) + packet * packet_elements_ * element_bytes_;
  // Zero is the neutral element of every operation here.
  std::fill(words.begin() + static_cast<std::ptrdiff_t>(count * coding_.lane_bytes / 8), words.end(), 0);
  coding_.encode(from, count, words.data());
  return 0;
}

void LaneTraffic::Take(uint64_t packet, const mlnet_cell& cell) {
  const size_t first = packet * packet_elements_, count = ElementsOf(packet);
  if (std::byte* place = window_.Place(first, count); place != nullptr) {
    coding_.decode(cell.w, count, place);
    return;
  }
  std::array<uint64_t, MLNET_WORDS_MAX> elements;  // none is larger than its lane
  coding_.decode(cell.w, count, elements.data());
  window_.Write(first, count, elements.data());
}

}  // namespace mlnet::worker
