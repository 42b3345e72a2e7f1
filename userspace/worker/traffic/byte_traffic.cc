// SPDX-License-Identifier: Apache-2.0
#include "traffic/byte_traffic.h"

#include <algorithm>
#include <cstring>

#include "elements.h"
#include "wire/packet.h"

namespace mlnet::worker {
namespace {

// Between the pieces of the ranks in a gathered result.
size_t StrideOf(const CollectiveSpec& spec) { return spec.gather_stride != 0 ? spec.gather_stride : spec.count; }

size_t ResultBytes(const CollectiveSpec& spec, const JobShape& job) {
  if (!IsGather(spec.kind)) return spec.count;
  return StrideOf(spec) * static_cast<size_t>(job.world_size - 1) + spec.count;
}

CollectiveSpec GatherOf(const CollectiveSpec& spec, std::byte* out) {
  CollectiveSpec gather;
  gather.kind = CollectiveKind::kAllGather;
  gather.in = spec.in;
  gather.out = out;
  gather.count = spec.count * SizeOf(spec.dtype);
  return gather;
}

template <typename T>
void AddInRankOrder(const std::byte* gathered, size_t count, int world_size, T* sum) {
  std::memcpy(sum, gathered, count * sizeof(T));
  for (int rank = 1; rank < world_size; ++rank) {
    const std::byte* from = gathered + static_cast<size_t>(rank) * count * sizeof(T);
    for (size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof(T), sizeof(T));
      sum[i] += value;
    }
  }
}

}  // namespace

ByteTraffic::ByteTraffic(const CollectiveSpec& spec, const JobShape& job)
    : spec_(spec), job_(job), packet_bytes_(job.blocks * MLNET_BLOCK_BYTES), window_(spec, 1, ResultBytes(spec, job)) {
  // A collective without a single byte still takes part in the order: one packet without payload.
  const uint64_t owners = IsGather(spec.kind) ? static_cast<uint64_t>(job.world_size) : 1;
  packets_ = std::max<uint64_t>(1, CeilDiv(spec.count, packet_bytes_) * owners);
}

ByteTraffic::Piece ByteTraffic::PieceOf(uint64_t packet) const {
  if (spec_.count == 0) return {};
  // Owners alternate, so that all uplinks carry data at the same time.
  const uint64_t owners = IsGather(spec_.kind) ? static_cast<uint64_t>(job_.world_size) : 1;
  Piece piece;
  piece.owner = IsGather(spec_.kind) ? static_cast<int>(packet % owners) : spec_.root;
  piece.offset = packet / owners * packet_bytes_;
  piece.bytes = std::min(packet_bytes_, spec_.count - piece.offset);
  return piece;
}

Shape ByteTraffic::ShapeOf(uint64_t packet) const {
  const Piece piece = PieceOf(packet);
  return {WordsFor(piece.bytes), wire::OpWire(MLNET_OP_ADD64, MLNET_WIRE_RAW),
          piece.owner < 0 || piece.owner == job_.rank};
}

uint8_t ByteTraffic::Fill(uint64_t packet, bool, std::span<uint64_t> words, uint8_t*) {
  const Piece piece = PieceOf(packet);
  if (piece.bytes == 0) return 0;
  auto* to = reinterpret_cast<std::byte*>(words.data());
  std::memcpy(to, static_cast<const std::byte*>(spec_.in) + piece.offset, piece.bytes);
  std::memset(to + piece.bytes, 0, words.size_bytes() - piece.bytes);
  return 0;
}

void ByteTraffic::Take(uint64_t packet, const mlnet_cell& cell) {
  const Piece piece = PieceOf(packet);
  const size_t base = IsGather(spec_.kind) && piece.owner > 0 ? static_cast<size_t>(piece.owner) * StrideOf(spec_) : 0;
  window_.Write(base + piece.offset, piece.bytes, cell.w);
}

RankOrderTraffic::RankOrderTraffic(const CollectiveSpec& spec, const JobShape& job)
    : spec_(spec),
      world_size_(job.world_size),
      gathered_(spec.count * SizeOf(spec.dtype) * static_cast<size_t>(job.world_size)),
      gather_(std::make_unique<ByteTraffic>(GatherOf(spec, gathered_.data()), job)) {
  packets_ = gather_->packets();
}

void RankOrderTraffic::Finish() {
  if (spec_.residual != nullptr) std::fill_n(spec_.residual, spec_.count, 0.0F);  // nothing was rounded away
  const Window window(spec_, SizeOf(spec_.dtype), spec_.count);
  if (spec_.dtype == DataType::kFloat64) {
    std::vector<double> sum(spec_.count);
    AddInRankOrder(gathered_.data(), spec_.count, world_size_, sum.data());
    window.Write(0, spec_.count, sum.data());
    return;
  }
  const size_t total = spec_.count * static_cast<size_t>(world_size_);
  std::vector<float> values(total), sum(spec_.count);
  LoadFloats(spec_.dtype, gathered_.data(), total, values.data());
  AddInRankOrder(reinterpret_cast<const std::byte*>(values.data()), spec_.count, world_size_, sum.data());
  StoreFloats(spec_.dtype, sum.data(), spec_.count, gathered_.data());
  window.Write(0, spec_.count, gathered_.data());
}

}  // namespace mlnet::worker
