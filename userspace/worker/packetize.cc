// SPDX-License-Identifier: Apache-2.0
#include "packetize.h"

#include <algorithm>
#include <array>

#include "wire/packet.h"

namespace mlnet::worker {

Packetizer::Packetizer(const EngineConfig& config, const TreeConfig& tree) : signer_(tree.signer), header_{} {
  header_.version_type = wire::VersionType(MLNET_T_CONTRIB);
  header_.job = config.job;
  header_.epoch = config.epoch;
  header_.tree = tree.tree;
  header_.child = tree.child;
}

size_t Packetizer::Bytes(const Collective& collective, uint64_t packet, bool is_retry) const {
  const Shape shape = collective.traffic->ShapeOf(packet);
  return wire::PacketBytes(shape.has_data || is_retry ? shape.words : 0, signer_.get());
}

void Packetizer::Build(const Collective& collective, uint8_t stream, uint64_t packet, bool is_retry,
                       std::span<std::byte> out) const {
  alignas(64) std::array<uint64_t, MLNET_WORDS_MAX> words;
  const Shape shape = collective.traffic->ShapeOf(packet);
  mlnet_hdr header = header_;
  mlnet_trailer trailer{};
  header.op_wire = shape.op_wire;
  header.class_stream = MLNET_CLASS_STREAM(collective.call->spec.traffic_class, stream);
  header.fingerprint = collective.fingerprint;
  header.words = shape.words;
  wire::SetSeq(header, (collective.first_seq + packet) & MLNET_SEQ_MASK);
  if (is_retry) header.flags |= MLNET_F_RETRY;
  if (IsServed(collective.call->spec.kind)) header.flags |= MLNET_F_SERVER;
  const std::span<uint64_t> payload(words.data(), shape.words);
  if (shape.has_data) {
    trailer.weight = 1;
    header.flags |= collective.traffic->Fill(packet, is_retry, payload, trailer.exps);
  } else {
    header.flags |= MLNET_F_NO_DATA;
    if (!is_retry) header.flags |= MLNET_F_NO_PAYLOAD;
    std::fill(payload.begin(), payload.end(), 0);
  }
  wire::Seal(header, payload, trailer, out, signer_.get());
}

}  // namespace mlnet::worker
