// SPDX-License-Identifier: Apache-2.0
#include "lane_base.h"

#include <algorithm>

namespace mlnet::worker {

LaneBase::LaneBase(const LaneContext& context, size_t tree, int traffic_class, LaneBase* repairs)
    : context_(context),
      tree_(context.config.trees[tree]),
      pool_((repairs != nullptr ? tree_.pools : tree_.fixups)[static_cast<size_t>(traffic_class)]),
      flow_(FlowOf(tree, traffic_class)),
      traffic_class_(traffic_class),
      repairs_(repairs),
      next_seq_(pool_.first_seq),
      oldest_(pool_.first_seq) {}

void LaneBase::Enqueue(const CollectiveSpec& part, std::shared_ptr<Call> call) {
  auto collective = std::make_shared<Collective>();
  const EngineConfig& config = context_.config;
  const uint64_t seed = SeedOf(uint64_t{config.job} << 16 | config.epoch, traffic_class_, call->ordinal, config.rank);
  collective->traffic =
      MakeTraffic(part, {config.rank, config.world_size, config.blocks, pool_.slots(), seed}, context_.counters);
  collective->bytes_per_packet = part.count * (IsReduction(part.kind) ? SizeOf(part.dtype) : 1) / collective->traffic->packets();
  collective->fingerprint = PartFingerprint(call->fingerprint, part.element_base, part.count);
  collective->call = std::move(call);
  Place(std::move(collective));
}

void LaneBase::Place(std::shared_ptr<Collective> collective) {
  collective->first_seq = next_seq_;
  next_seq_ += collective->traffic->packets();
  next_deadline_ns_ = std::min(next_deadline_ns_, collective->call->deadline_ns);
  active_.push_back(std::move(collective));
  OnPlaced(*active_.back());
}

// What the results of `collective` left open, each as a collective of its own on this stream.
void LaneBase::Repair(const std::shared_ptr<Collective>& collective) {
  auto repairs = collective->traffic->Repairs();
  collective->repairs_left = repairs.size();
  for (size_t i = 0; i < repairs.size(); ++i) {
    auto repair = std::make_shared<Collective>();
    repair->call = collective->call;
    repair->fingerprint =
        RepairFingerprint(collective->fingerprint, collective->call->ordinal, i, repairs[i]->packets());
    repair->traffic = std::move(repairs[i]);
    repair->parent = collective;
    Place(std::move(repair));
  }
}

void LaneBase::RetireAnswered() {
  while (!active_.empty() && active_.front()->IsAnswered()) {
    if (active_.front()->traffic->NeedsRepair()) repairs_->Repair(active_.front());
    active_.pop_front();
  }
}

const mlnet_cell& LaneBase::CellOf(uint64_t seq) const {
  const uint32_t set = static_cast<uint32_t>(seq >> pool_.log2_slots) & 1U;
  return context_.transport.Cells()[pool_.cell_base + IndexOf(seq) * 2 + set];
}

bool LaneBase::IsPublished(uint64_t seq) const {
  // The program publishes with a full barrier after the words; this is its other half.
  return __atomic_load_n(&CellOf(seq).published, __ATOMIC_ACQUIRE) == MLNET_STAMP(context_.config.epoch, seq);
}

void LaneBase::Finish(Collective& collective) {
  if (collective.traffic->NeedsRepair()) return;  // goes on in the fix-up stream when its turn comes
  collective.traffic->Finish();
  if (collective.parent) {
    if (--collective.parent->repairs_left > 0) return;
    collective.parent->traffic->Finish();
  }
  if (--collective.call->parts_left == 0) collective.call->work->Complete({});
}

std::optional<Error> LaneBase::FindFailure(uint64_t now_ns) {
  if (failure_) return failure_;
  if (now_ns < next_deadline_ns_) return std::nullopt;
  next_deadline_ns_ = kNever;
  for (const auto& collective : active_) {
    if (collective->IsAnswered()) continue;
    const uint64_t deadline_ns = DeadlineOf(*collective);
    if (now_ns >= deadline_ns) return TimeoutError(*collective);
    next_deadline_ns_ = std::min(next_deadline_ns_, deadline_ns);
  }
  return std::nullopt;
}

void LaneBase::FailAll(const Error& error) {
  for (const auto& collective : active_) collective->call->work->Complete(tl::make_unexpected(error));
  active_.clear();
  next_deadline_ns_ = kNever;
}

uint64_t LaneBase::DeadlineOf(const Collective& collective) const {
  const uint64_t deadline_ns = collective.call->deadline_ns;
  if (!is_kept_waiting_) return deadline_ns;
  return std::max(deadline_ns, std::max(kept_since_ns_, last_answer_ns_) + TimeoutOf(collective));
}

void LaneBase::KeepWaiting(bool waits, uint64_t now_ns) {
  if (waits && !is_kept_waiting_) kept_since_ns_ = now_ns;
  if (!waits && is_kept_waiting_) {
    // Its time starts anew: that it was not done by now is not the ranks' fault.
    for (const auto& collective : active_) {
      uint64_t& deadline_ns = collective->call->deadline_ns;
      deadline_ns = std::max(deadline_ns, now_ns + TimeoutOf(*collective));
    }
    next_deadline_ns_ = now_ns;
  }
  is_kept_waiting_ = waits;
}

uint64_t LaneBase::TimeoutOf(const Collective& collective) const {
  const uint64_t own_ns = collective.call->spec.timeout_ns;
  return own_ns != 0 ? own_ns : context_.config.timeout_ns;
}

std::string LaneBase::TimeoutText(const Collective& collective) const {
  return collective.Describe() + " not done within its timeout of " + std::to_string(TimeoutOf(collective) / 1'000'000) + " ms: ";
}

void LaneBase::Describe(Call& call) {
  if (call.is_described) return;
  call.is_described = true;
  context_.control.Describe(call.ordinal, call.fingerprint, call.Describe());
}

}  // namespace mlnet::worker
