// SPDX-License-Identifier: Apache-2.0
#include "packetize.h"

#include <algorithm>
#include <cstring>

#include "wire/packet.h"

namespace mlnet::worker {
namespace {

uint8_t OpWireOf(const Collective& collective, uint64_t packet) {
  if (collective.IsProbe(packet)) return wire::OpWire(MLNET_OP_MAX8, MLNET_WIRE_EXPS);
  const CollectiveSpec& spec = collective.spec;
  if (spec.kind != CollectiveKind::kAllReduce) return wire::OpWire(MLNET_OP_ADD64, MLNET_WIRE_RAW);
  if (spec.dtype == DataType::kInt32) return wire::OpWire(MLNET_OP_ADD32, MLNET_WIRE_INT32);
  return wire::OpWire(MLNET_OP_ADD64, MLNET_WIRE_BIASED32);
}

}  // namespace

std::span<const float> FloatsOf(const Collective& collective, uint64_t packet) {
  const uint64_t first = packet * collective.plan.units_per_packet;
  const uint64_t count = std::min<uint64_t>(collective.plan.units_per_packet, collective.spec.count - first);
  return {static_cast<const float*>(collective.spec.in) + first, count};
}

Packetizer::Packetizer(const EngineConfig& config)
    : header_{},
      rank_(config.rank),
      world_size_(config.world_size),
      log2_range_(Log2Range(config.world_size)) {
  header_.version_type = wire::VersionType(MLNET_T_CONTRIB);
  header_.job = config.job;
  header_.epoch = config.epoch;
  header_.tree = config.tree;
  header_.child = config.child;
  for (size_t c = 0; c < slots_.size(); ++c) slots_[c] = config.pools[c].slots();
}

size_t Packetizer::Bytes(const Collective& collective, uint64_t packet, bool is_retry) const {
  if (collective.IsProbe(packet)) {
    return wire::PacketBytes(ProbeWords(collective.plan, static_cast<uint32_t>(packet)));
  }
  const Piece piece = PieceOf(collective.spec, collective.plan, world_size_, packet - collective.plan.probes);
  return wire::PacketBytes(IsMine(piece) || is_retry ? piece.words : 0);
}

void Packetizer::Build(const Collective& collective, uint64_t packet, bool is_retry,
                       std::span<std::byte> out) const {
  alignas(64) std::array<uint64_t, MLNET_WORDS_MAX> words;
  mlnet_hdr header = header_;
  mlnet_trailer trailer{};
  header.op_wire = OpWireOf(collective, packet);
  header.class_stream = MLNET_CLASS_STREAM(collective.spec.traffic_class, 0);
  header.fingerprint = collective.fingerprint;
  wire::SetSeq(header, (collective.first_seq + packet) & MLNET_SEQ_MASK);
  trailer.weight = 1;
  if (is_retry) header.flags |= MLNET_F_RETRY;
  if (collective.IsProbe(packet)) {
    const auto probe = static_cast<uint32_t>(packet);
    header.words = ProbeWords(collective.plan, probe);
    BuildProbe(collective, probe, words.data());
  } else {
    const uint64_t data_packet = packet - collective.plan.probes;
    const Piece piece = PieceOf(collective.spec, collective.plan, world_size_, data_packet);
    header.words = piece.words;
    if (IsMine(piece)) {
      BuildData(collective, piece, data_packet, words.data());
      const uint64_t ahead = data_packet + slots_[collective.spec.traffic_class];
      if (collective.plan.probes > 0 && ahead < collective.plan.packets) {
        PacketExps exps;
        MeasureExps(FloatsOf(collective, ahead), exps);
        std::memcpy(trailer.exps, exps.data(), exps.size());
      }
    } else {
      trailer.weight = 0;
      header.flags |= MLNET_F_NO_DATA;
      if (!is_retry) header.flags |= MLNET_F_NO_PAYLOAD;
      std::fill_n(words.begin(), piece.words, 0);
    }
  }
  wire::Seal(header, {words.data(), header.words}, trailer, out);
}

void Packetizer::BuildProbe(const Collective& collective, uint32_t probe, uint64_t* words) const {
  const Plan& plan = collective.plan;
  const uint32_t first = probe * plan.probe_covers;
  const uint32_t covered = std::min(plan.probe_covers, plan.covered - first);
  std::fill_n(words, ProbeWords(plan, probe), 0);
  auto* bytes = reinterpret_cast<std::byte*>(words);
  for (uint32_t i = 0; i < covered; ++i) {
    PacketExps exps;
    MeasureExps(FloatsOf(collective, first + i), exps);
    std::memcpy(bytes + static_cast<size_t>(i) * exps.size(), exps.data(), exps.size());
  }
}

void Packetizer::BuildData(const Collective& collective, const Piece& piece, uint64_t packet,
                           uint64_t* words) const {
  if (collective.plan.probes > 0) {
    Quantize(FloatsOf(collective, packet), collective.CommonOf(packet), log2_range_,
             reinterpret_cast<uint32_t*>(words));
    return;
  }
  // Plain bits: integers, or the bytes of one owner. Padding is zero, the neutral element of both.
  const size_t bytes = static_cast<size_t>(piece.count) * collective.plan.unit_bytes;
  if (bytes == 0) return;
  auto* to = reinterpret_cast<std::byte*>(words);
  const auto* from = static_cast<const std::byte*>(collective.spec.in);
  std::memcpy(to, from + piece.offset * collective.plan.unit_bytes, bytes);
  std::memset(to + bytes, 0, static_cast<size_t>(piece.words) * 8 - bytes);
}

}  // namespace mlnet::worker
