// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <algorithm>
#include <cstring>

#include "lane.h"
#include "server_lane.h"
#include "traffic/partition.h"
#include "wire/packet.h"

namespace mlnet::worker {
namespace {

constexpr uint32_t kTurnPackets = kBatchPacketsMax;  // of one class before the next class has its turn
constexpr uint64_t kReportNs = 1'000'000'000;
constexpr uint64_t kTraceNs = 50'000'000;
constexpr size_t kTraceRecords = 256;  // a message

std::vector<uint32_t> WeightsOf(const EngineConfig& config) {
  std::vector<uint32_t> weights;
  for (const TreeConfig& tree : config.trees) weights.push_back(tree.weight);
  return weights;
}

}  // namespace

Engine::Engine(const EngineConfig& config, Transport& transport, ControlSink& control)
    : config_(config), transport_(transport), control_(control), batch_(transport), weights_(WeightsOf(config)) {
  config_.is_server ? MakeLanes<ServerLane>() : MakeLanes<Lane>();
}

template <typename LaneType>
void Engine::MakeLanes() {
  const LaneContext context{config_, transport_, batch_, counters_, control_, recorder_};
  const size_t flows = FlowOf(config_.trees.size(), 0);
  lanes_.resize(flows * MLNET_STREAMS_MAX);
  for (size_t tree = 0; tree < config_.trees.size(); ++tree) {
    for (int c = 0; c < MLNET_CLASSES_MAX; ++c) {
      if (!config_.trees[tree].pools[static_cast<size_t>(c)].is_open) continue;
      auto fixups = std::make_unique<LaneType>(context, tree, c, nullptr);
      lanes_[flows + FlowOf(tree, c)] = std::make_unique<LaneType>(context, tree, c, fixups.get());
      lanes_[FlowOf(tree, c)] = std::move(fixups);
      for (int stream = 0; stream < MLNET_STREAMS_MAX; ++stream) {
        lanes_by_class_[static_cast<size_t>(MLNET_CLASSES_MAX - 1 - c)].push_back(LaneOf(tree, c, stream));
      }
    }
  }
}

LaneBase* Engine::LaneOf(size_t tree, int traffic_class, int stream) const {
  return lanes_[(stream == 0 ? FlowOf(config_.trees.size(), 0) : 0) + FlowOf(tree, traffic_class)].get();
}

Engine::~Engine() { Fail({ErrorCode::kCancelled, "the communicator was closed", {}}); }

std::optional<Error> Engine::Refusal(const CollectiveSpec& spec) const {
  if (IsServed(spec.kind) && !config_.has_server) {
    return Error{ErrorCode::kInvalidArgument, "push and pull need a job with a server", "create the job with --root server"};
  }
  if (LaneOf(0, spec.traffic_class, 0) != nullptr) return std::nullopt;
  return Error{ErrorCode::kInvalidArgument,
               "traffic class " + std::to_string(spec.traffic_class) + " is not open in this job",
               "create the job with more classes"};
}

// The server counts the packets of a class as the ranks do, but knows only of pushes and pulls. REQUIRES: mutex_ held.
std::optional<Error> Engine::ClassRefusal(const CollectiveSpec& spec) {
  std::optional<bool>& is_served = is_served_[static_cast<size_t>(spec.traffic_class)];
  if (!is_served) is_served = IsServed(spec.kind);
  if (*is_served == IsServed(spec.kind)) return std::nullopt;
  return Error{ErrorCode::kInvalidArgument,
               "traffic class " + std::to_string(spec.traffic_class) + " carries " +
                   (*is_served ? "pushes and pulls" : "collectives") + " in this job; " + DescribeSpec(spec) + " needs another",
               "set CallOptions::traffic_class"};
}

std::shared_ptr<Work> Engine::Submit(const CollectiveSpec& spec) {
  auto work = std::make_shared<WorkState>(spec.on_done);
  if (config_.world_size == 1 && !IsServed(spec.kind)) {
    CopyAlone(spec);
    work->Complete({});
  } else if (const auto refusal = Place(spec, work)) {
    work->Complete(tl::make_unexpected(*refusal));
  }
  return work;
}

std::optional<Error> Engine::Place(const CollectiveSpec& spec, const std::shared_ptr<WorkState>& work) {
  if (auto refusal = Refusal(spec)) return refusal;
  std::lock_guard lock(mutex_);
  if (failure_) return failure_;
  if (auto refusal = ClassRefusal(spec)) return refusal;
  submissions_.push_back({spec, work});
  submissions_.back().spec.on_done = nullptr;  // the work has it
  has_submissions_.store(true, std::memory_order_release);
  return std::nullopt;
}

void Engine::CopyAlone(const CollectiveSpec& spec) {
  const size_t unit = IsReduction(spec.kind) ? SizeOf(spec.dtype) : 1;
  if (spec.count > 0 && spec.in != spec.out) std::memmove(spec.out, spec.in, spec.count * unit);
  if (spec.residual != nullptr) std::fill_n(spec.residual, spec.count, 0.0F);
}

bool Engine::RunLanes(uint64_t now_ns) {
  bool has_progress = TakeNotices(now_ns);
  for (auto& lane : lanes_) {
    if (lane && !lane->IsIdle()) has_progress |= lane->Receive(now_ns);
  }
  has_progress |= SendRound(now_ns);
  batch_.Flush();
  return has_progress;
}

Turn Engine::RunOnce(uint64_t now_ns) {
  bool has_progress = TakeSubmissions(now_ns);
  if (grant_.window != 0) ShareGrant(now_ns);
  if (is_suspended_) has_progress |= ResumeIfSettled();
  if (!is_suspended_) has_progress |= RunLanes(now_ns);
  GiveUpIfNeeded(now_ns);
  ReportStats(now_ns);
  ReportTrace(now_ns);
  if (config_.ping_ns != 0 && now_ns >= next_ping_ns_) Ping(now_ns);

  Turn turn{has_progress, config_.ping_ns == 0 ? kNever : next_ping_ns_};
  for (auto& lane : lanes_) {
    if (lane && !lane->IsIdle()) turn.next_ns = std::min(turn.next_ns, lane->NextEventNs());
  }
  return turn;
}

std::vector<LaneBase*> Engine::LanesInOrder() const {
  std::vector<LaneBase*> lanes;
  for (size_t tree = 0; tree < config_.trees.size(); ++tree) {
    for (int c = 0; c < MLNET_CLASSES_MAX; ++c) {
      for (int stream = 0; stream < MLNET_STREAMS_MAX; ++stream) {
        if (LaneBase* lane = LaneOf(tree, c, stream)) lanes.push_back(lane);
      }
    }
  }
  return lanes;
}

std::vector<Held> Engine::Suspend(uint64_t now_ns) {
  std::vector<Held> held;
  for (LaneBase* lane : LanesInOrder()) {
    if (!lane->IsIdle()) lane->Receive(now_ns);
  }
  batch_.Flush();
  for (const LaneBase* lane : LanesInOrder()) held.push_back(lane->HeldResults());
  is_suspended_ = true;
  return held;
}

bool Engine::ResumeIfSettled() {
  const auto settled = transport_.TakeSettled();
  if (!settled) return false;
  is_suspended_ = false;
  const auto lanes = LanesInOrder();
  for (size_t i = 0; i < lanes.size(); ++i) lanes[i]->Resume((*settled)[i]);
  batch_.Flush();
  return true;
}

bool Engine::TakeSubmissions(uint64_t now_ns) {
  if (!has_submissions_.load(std::memory_order_acquire)) return false;
  {
    std::lock_guard lock(mutex_);
    taken_.swap(submissions_);
    has_submissions_.store(false, std::memory_order_relaxed);
  }
  for (Submission& call : taken_) Enqueue(call.spec, std::move(call.work), now_ns);
  taken_.clear();
  return true;
}

// Stage 1, partition.
void Engine::Enqueue(const CollectiveSpec& spec, std::shared_ptr<WorkState> work, uint64_t now_ns) {
  auto call = std::make_shared<Call>();
  call->spec = spec;
  call->spec.is_in_rank_order = IsSmallSum(spec, config_.world_size, config_.small_bytes);
  call->work = std::move(work);
  call->ordinal = next_ordinal_[static_cast<size_t>(spec.traffic_class)]++;
  call->fingerprint = Fingerprint(spec);
  call->called_ns = now_ns;
  call->deadline_ns = now_ns + (spec.timeout_ns != 0 ? spec.timeout_ns : config_.timeout_ns);
  const auto parts = Partition(call->spec, weights_, config_.blocks, call->ordinal);
  call->parts_left = parts.size();
  for (const Part& part : parts) LaneOf(part.tree, spec.traffic_class, 0)->Enqueue(part.spec, call);
}

bool Engine::TakeNotices(uint64_t now_ns) {
  bool has_any = false;
  mlnet_notice notice;
  while (transport_.NextNotice(notice)) {
    has_any = true;
    if (notice.type == 0) continue;  // a wake-up
    const auto tree = std::find_if(config_.trees.begin(), config_.trees.end(),
                                   [&](const TreeConfig& t) { return t.tree == notice.tree; });
    if (notice.epoch != config_.epoch || tree == config_.trees.end()) continue;
    // An inner node passes on what it is told to all of its ranks.
    if (notice.child != tree->child && notice.child != MLNET_CHILD_ALL) continue;
    LaneBase* lane = LaneOf(static_cast<size_t>(tree - config_.trees.begin()), MLNET_CLASS(notice.class_stream),
                        MLNET_STREAM(notice.class_stream));
    if (lane != nullptr && !lane->IsIdle()) lane->OnNotice(notice, now_ns);
  }
  return has_any;
}

// Stage 2, schedule: the higher class first. Lower ones wait while it presses on, so that an urgent tensor shares the link
// with none of the backlog; where it waits itself (for probes, for a slow rank), they go on, and so does one that has waited long.
bool Engine::SendRound(uint64_t now_ns) {
  bool has_sent = false, is_pressed = false;
  for (auto& lanes : lanes_by_class_) {
    bool presses = false;
    for (size_t i = 0; i < lanes.size(); ++i) {
      LaneBase& lane = *lanes[(next_lane_ + i) % lanes.size()];
      if (lane.IsIdle() || (is_pressed && !lane.HasAged(now_ns))) continue;
      has_sent |= lane.Send(now_ns, kTurnPackets) > 0;
      presses |= lane.Presses(now_ns);
    }
    is_pressed |= presses;
  }
  ++next_lane_;
  return has_sent;
}

void Engine::GiveUpIfNeeded(uint64_t now_ns) {
  for (auto& lane : lanes_) {
    if (!lane || lane->IsIdle()) continue;
    const auto failure = lane->FindFailure(now_ns);
    if (!failure) continue;
    control_.Abort(*failure);
    Fail(*failure);
    return;
  }
}

void Engine::Fail(const Error& error) {
  std::vector<Submission> never_begun;
  {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    never_begun.swap(submissions_);
    has_submissions_.store(false, std::memory_order_relaxed);
  }
  for (Submission& call : never_begun) call.work->Complete(tl::make_unexpected(*failure_));  // may call Submit
  for (auto& lane : lanes_) {
    if (lane) lane->FailAll(error);
  }
}

bool Engine::HasFailed() {
  std::lock_guard lock(mutex_);
  return failure_.has_value();
}

void Engine::SetRtoBounds(uint64_t min_ns, uint64_t max_ns) {
  for (auto& lane : lanes_) {
    if (lane) lane->SetRtoBounds(min_ns, max_ns);
  }
}

void Engine::SetGrant(const Grant& grant, uint64_t now_ns) {
  if (grant.dscp != grant_.dscp) transport_.SetDscp(grant.dscp);
  grant_ = grant;
  num_sharing_ = 0;
  ShareGrant(now_ns);
}

// A job has no more of a link for being cut into trees and classes.
void Engine::ShareGrant(uint64_t now_ns) {
  const auto busy = std::count_if(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane && !lane->IsIdle(); });
  const size_t num_sharing = std::max<size_t>(1, static_cast<size_t>(busy));
  if (num_sharing == num_sharing_) return;
  num_sharing_ = num_sharing;
  const uint32_t window = std::max(1U, grant_.window / static_cast<uint32_t>(num_sharing));
  for (auto& lane : lanes_) {
    if (lane) lane->SetGrant(grant_, window, now_ns);
  }
}

void Engine::DescribeCurrent() {
  for (auto& lane : lanes_) {
    if (lane && !lane->IsIdle()) lane->DescribeOldest();
  }
}

bool Engine::IsIdle() const {
  for (const auto& lane : lanes_) {
    if (lane && !lane->IsIdle()) return false;
  }
  return !has_submissions_.load(std::memory_order_acquire);
}

void Engine::ReportStats(uint64_t now_ns) {
  if (now_ns < next_report_ns_) return;
  const uint64_t results = counters_.results.Read();
  if (results == reported_results_) return;  // the first after a pause is told at once
  next_report_ns_ = now_ns + kReportNs;
  reported_results_ = results;
  control_.Report(counters_.Snapshot());
}

// By each tree, whatever else is on its way: the nodes above see that this rank lives, and its daemon that they do.
void Engine::Ping(uint64_t now_ns) {
  next_ping_ns_ = now_ns + config_.ping_ns;
  for (size_t t = 0; t < config_.trees.size(); ++t) {
    const TreeConfig& tree = config_.trees[t];
    const auto open = std::find_if(tree.pools.rbegin(), tree.pools.rend(), [](const PoolConfig& pool) { return pool.is_open; });
    const auto traffic_class = static_cast<int>(tree.pools.rend() - open) - 1;
    mlnet_hdr header{};
    header.version_type = wire::VersionType(MLNET_T_PING);
    header.job = config_.job;
    header.epoch = config_.epoch;
    header.tree = tree.tree;
    header.class_stream = static_cast<uint8_t>(MLNET_CLASS_STREAM(traffic_class, 0));
    header.child = tree.child;
    header.flags = MLNET_F_NO_PAYLOAD;
    wire::SetSeq(header, MLNET_PING_SEQ(now_ns));
    std::array<std::byte, wire::kOverheadBytes + MLNET_MAC_BYTES> bytes;
    const size_t length = wire::Seal(header, {}, mlnet_trailer{}, bytes, tree.signer.get());
    // One that cannot be sent is lost, as it may be later on; sends of data say why.
    (void)transport_.Send(FlowOf(t, traffic_class), std::span(bytes).first(length), length);
  }
}

void Engine::SetTracing(bool is_on) {
  has_trace_end_ = !is_on && recorder_.IsOn();
  is_on ? recorder_.Start() : recorder_.Stop();
}

void Engine::ReportTrace(uint64_t now_ns) {
  if (!has_trace_end_ && (recorder_.IsEmpty() || now_ns < next_trace_ns_)) return;
  next_trace_ns_ = now_ns + kTraceNs;
  bool is_last = false;
  do {
    const auto records = recorder_.Take(kTraceRecords);
    is_last = has_trace_end_ && recorder_.IsEmpty();
    control_.Traced(records, is_last);
  } while (!recorder_.IsEmpty());
  if (is_last) has_trace_end_ = false;
}

}  // namespace mlnet::worker
