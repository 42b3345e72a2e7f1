// SPDX-License-Identifier: Apache-2.0
#include "server_lane.h"

#include <algorithm>
#include <array>

#include "wire/packet.h"

namespace mlnet::worker {

ServerLane::ServerLane(const LaneContext& context, size_t tree, int traffic_class, ServerLane* repairs)
    : LaneBase(context, tree, traffic_class, repairs), states_(pool_.slots()) {}

bool ServerLane::Receive(uint64_t now_ns) {
  bool has_progress = false;
  // A rank sends s + P only after it has the answer to s, so nothing newer can be here.
  const uint64_t end = std::min(next_seq_, oldest_ + pool_.slots());
  for (const auto& collective : active_) {
    const uint64_t first = std::max(collective->first_seq, oldest_);
    const uint64_t last = std::min(collective->first_seq + collective->traffic->packets(), end);
    for (uint64_t seq = first; seq < last; ++seq) {
      has_progress |= Look(*collective, seq - collective->first_seq);
    }
  }
  while (oldest_ < end && states_[IndexOf(oldest_)] == State::kAcknowledged) {
    states_[IndexOf(oldest_)] = State::kExpected;  // from now on that of oldest_ + P
    ++oldest_;
  }
  RetireAnswered();
  if (has_progress) last_answer_ns_ = now_ns;
  return has_progress;
}

bool ServerLane::Look(Collective& collective, uint64_t packet) {
  const uint64_t seq = collective.first_seq + packet;
  State& state = states_[IndexOf(seq)];
  if (state == State::kExpected && IsPublished(seq)) {
    if (!Take(collective, packet)) return false;
    state = State::kAnswered;
    return true;
  }
  if (state != State::kAnswered || !IsAcknowledged(seq)) return false;
  state = State::kAcknowledged;
  ++collective.answered;
  if (collective.IsAnswered()) Finish(collective);
  return true;
}

bool ServerLane::IsAcknowledged(uint64_t seq) const {
  return __atomic_load_n(&CellOf(seq).bitmap, __ATOMIC_RELAXED) == MLNET_STAMP(context_.config.epoch, seq);
}

bool ServerLane::Take(Collective& collective, uint64_t packet) {
  const mlnet_cell& cell = CellOf(collective.first_seq + packet);
  if (cell.fingerprint != collective.fingerprint || cell.words != collective.traffic->ShapeOf(packet).words) {
    Describe(*collective.call);  // the ranks call something else: mlnetd asks them what, and ends the job
    return false;
  }
  if ((cell.flags & MLNET_F_NO_DATA) == 0) collective.traffic->Take(packet, cell);
  else collective.traffic->TakeReceipt(packet, cell);
  Counters& counters = context_.counters;
  counters.results.Add();
  if (collective.parent) counters.repairs.Add();
  if (collective.traffic->IsProbe(packet)) counters.probes.Add();
  counters.packets_sent.Add();
  Answer(collective, packet);
  return true;
}

void ServerLane::Answer(const Collective& collective, uint64_t packet) {
  alignas(64) std::array<uint64_t, MLNET_WORDS_MAX> words;
  const mlnet_cell& cell = CellOf(collective.first_seq + packet);
  const bool is_pull = collective.call->spec.kind == CollectiveKind::kPull;
  const std::span<uint64_t> payload(words.data(), cell.words);
  mlnet_hdr header{};
  mlnet_trailer trailer{};
  header.version_type = wire::VersionType(MLNET_T_ANSWER);
  header.op_wire = cell.op_wire;
  header.job = context_.config.job;
  header.epoch = context_.config.epoch;
  header.tree = tree_.tree;
  header.class_stream = MLNET_CLASS_STREAM(traffic_class_, stream());
  header.child = MLNET_CHILD_ALL;
  header.words = cell.words;
  header.fingerprint = cell.fingerprint;
  wire::SetSeq(header, (collective.first_seq + packet) & MLNET_SEQ_MASK);
  header.flags = cell.flags & MLNET_F_OR_MASK;
  trailer.weight = cell.weight;
  std::copy_n(cell.exps, MLNET_EXPS_BYTES, trailer.exps);
  if (is_pull) {
    if (!payload.empty()) collective.traffic->Fill(packet, false, payload, trailer.exps);
  } else if (collective.traffic->IsProbe(packet)) {
    std::copy_n(cell.w, payload.size(), payload.begin());
  } else {
    header.flags |= MLNET_F_NO_DATA | MLNET_F_NO_PAYLOAD;
  }
  const size_t bytes = wire::PacketBytes((header.flags & MLNET_F_NO_PAYLOAD) != 0 ? 0 : payload.size(), tree_.signer.get());
  wire::Seal(header, payload, trailer, context_.batch.Take(flow_, bytes), tree_.signer.get());
}

Collective* ServerLane::Find(uint64_t seq) const {
  for (const auto& collective : active_) {
    if (seq >= collective->first_seq && seq < collective->first_seq + collective->traffic->packets()) return collective.get();
  }
  return nullptr;
}

void ServerLane::OnNotice(const mlnet_notice& notice, uint64_t) {
  if (notice.type != MLNET_T_CONTRIB) return;
  // The notice has 48 bits of seq; what is asked for lies within one pool of oldest_.
  const uint64_t seq = oldest_ + ((notice.seq - oldest_) & MLNET_SEQ_MASK);
  const Collective* collective = Find(seq);
  if (collective == nullptr || seq - oldest_ >= pool_.slots() || states_[IndexOf(seq)] != State::kAnswered) return;
  if (IsAcknowledged(seq)) return;
  context_.counters.retransmits.Add();
  Answer(*collective, seq - collective->first_seq);
}

Error ServerLane::TimeoutError(const Collective& collective) const {
  const auto done = static_cast<size_t>(std::count(states_.begin(), states_.end(), State::kAnswered));
  if (done > 0) {
    return {ErrorCode::kTimeout, TimeoutText(collective) + "the root at " + tree_.aggregator + " did not take the answers",
            "mlnetctl stats on this host shows what became of them"};
  }
  return {ErrorCode::kTimeout, TimeoutText(collective) + "not all ranks have sent packet " + std::to_string(oldest_),
          "are they alive, and do they call the same pushes and pulls in the same order"};
}

}  // namespace mlnet::worker
