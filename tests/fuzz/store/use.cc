// SPDX-License-Identifier: Apache-2.0
#include "fuzz/store/use.h"

#include <set>
#include <string>

#include "control/job.h"
#include "control/liveness.h"
#include "control/node.h"
#include "control/order.h"
#include "control/plan.h"
#include "control/quota.h"
#include "control/record.h"
#include "control/ring.h"
#include "control/tree.h"
#include "daemon/levels.h"
#include "fuzz/require.h"

namespace mlnet::fuzz {
namespace {

using control::HostRecord;
using control::JobView;
using control::Json;
using control::Plan;

constexpr uint64_t kNowMs = 1'700'000'000'000;
constexpr double kAgeing = 4;

const control::Addressing& TheAddressing() {
  static const control::Addressing kAddressing{"auto", *control::ParseGroupPrefix("239.77.0.0/16"), *control::ParseGroupPrefix("ff15::6d6c:0/112")};
  return kAddressing;
}

control::MemberRecord Member(int rank, const std::string& host) {
  control::MemberRecord member;
  member.rank = rank;
  member.host = host;
  member.connected = member.rings = true;
  return member;
}

bool IsPlanned(const JobView& view) { return !view.job.plan.trees.empty(); }

// What has been looked at, as text.
struct Seen {
  std::set<std::string> of_planned, of_input;
  bool IsNew(const std::string& text) { return !of_planned.contains(text) && of_input.insert(text).second; }
};
Seen kept, used;

// As the store keeps it.
void RequireKept(const JobView& view) {
  const Json json = view;
  const std::string text = json.dump();
  if (!kept.IsNew(text)) return;
  const auto again = control::ReadJobView(text);
  REQUIRE(again && Json(*again) == json);
}

control::HostIds IdsFor(const Plan& plan, const std::string& host) {
  control::HostIds ids;
  ids.rings.assign(control::LocalRanks(plan, host).size(), 1);
  ids.trees.resize(plan.trees.size());
  for (size_t t = 0; t < plan.trees.size(); ++t) {
    const auto node = control::FindNode(plan, t, host);
    if (node && control::IsSumming(plan, t, *node)) ids.trees[t].words.assign(control::NumPools(plan), 1);
  }
  return ids;
}

void UsePlan(const Plan& plan) {
  (void)control::InboxCells(plan);
  (void)control::NamesOfAggregators(plan);
  for (const std::string& host : control::HostsOf(plan)) {
    const control::HostIds ids = IdsFor(plan, host);
    std::vector<mlnet_node> nodes;
    for (size_t t = 0; t < plan.trees.size(); ++t) nodes.push_back(control::MakeNode(plan, t, host, ids, {}, true));
    const control::HostIds again = control::IdsIn(plan, host, nodes);
    for (size_t t = 0; t < nodes.size(); ++t) REQUIRE(control::IsSameNode(nodes[t], control::MakeNode(plan, t, host, again, {}, true)));
    (void)control::SlotsHeld(plan, host);
    (void)control::IsRootOfAny(plan, host);
  }
  for (size_t rank = 0; rank < plan.host_of_rank.size(); ++rank) {
    (void)control::RingAddress(plan, static_cast<int>(rank));
    for (size_t t = 0; t < plan.trees.size(); ++t) REQUIRE(control::ChildIndexOf(plan, t, static_cast<int>(rank)) < MLNET_CHILDREN_MAX);
  }
}

void UseSilence(const JobView& view) {
  const Plan& plan = view.job.plan;
  for (const std::string& host : control::HostsOf(plan)) {
    control::Signs signs;
    for (size_t t = 0; t < plan.trees.size(); ++t) {
      control::TreeSigns& tree = signs.trees.emplace_back();
      const auto node = control::FindNode(plan, t, host);
      if (!node) continue;
      if (control::IsSumming(plan, t, *node)) tree.children = {{0, 0}, {1, 1}};
      if (*node != 0 && !control::LocalRanks(plan, host).empty()) tree.answer_ns = 0;
    }
    control::Liveness liveness(view.job.incarnation, 1);
    for (const uint64_t now_ns : {uint64_t{1'000'000}, uint64_t{20'000'000'000}, uint64_t{20'100'000'000}}) (void)liveness.Look(view, host, signs, now_ns);
  }
}

// Each of these is a decision that some daemon may take of the record.
void UseEvents(const JobView& view) {
  const Error lost{ErrorCode::kRankLost, "lost", ""};
  std::set<int> ranks = {control::kServerRank, 0};
  for (const auto& member : view.members) ranks.insert(member.rank);
  const auto then = [&](const auto& change) {
    JobView after = view;
    change(after);
    RequireKept(after);
  };
  for (const int rank : ranks) {
    then([&](JobView& v) { (void)control::Join(v, {rank, std::max(1, v.job.world_size), "w1", 7, 0, true, true}, kNowMs); });
    then([&](JobView& v) { control::MemberGone(v, rank, true, kNowMs); });
    then([&](JobView& v) { control::MemberGone(v, rank, false, kNowMs); });
    then([&](JobView& v) { control::JoinTimedOut(v, rank, 1000, kNowMs); });
  }
  if (!IsPlanned(view)) return;
  for (const std::string& host : control::HostsOf(view.job.plan)) {
    then([&](JobView& v) { control::LoseHost(v, host, lost, "token", kNowMs); });
    then([&](JobView& v) { control::NoteSilentRoot(v, host, control::RootOf(v.job.plan, 0).host, lost, "token", kNowMs); });
  }
}

}  // namespace

JobView PlannedJob() {
  JobView view;
  view.job.name = "demo";
  view.job.state = control::kReady;
  view.job.world_size = 3;
  view.job.plan.job_id = view.job.plan.epoch = 1;
  view.job.plan.ports = {{"a1", "eth0", "10.0.0.9", "127.0.0.1"}, {"w1", "eth0", "10.0.0.1", "127.0.0.1"}, {"w2", "eth0", "10.0.0.2", ""}};
  view.job.plan.trees = {{1, {{0, -1}, {1, 0}, {2, 0}}}};
  view.job.plan.group = "239.77.0.1";
  view.job.plan.blocks = MLNET_BLOCKS_MAX;
  view.job.plan.log2_slots = 8;
  view.job.plan.classes = 2;
  view.job.plan.host_of_rank = {"w1", "w1", "w2"};
  for (const int rank : {0, 1, 2}) view.members.push_back(Member(rank, view.job.plan.host_of_rank[static_cast<size_t>(rank)]));
  return view;
}

Input::Input() {
  if (!used.of_planned.empty()) return;
  Use(PlannedJob());
  kept.of_planned.swap(kept.of_input);
  used.of_planned.swap(used.of_input);
}

Input::~Input() {
  kept.of_input.clear();
  used.of_input.clear();
}

void Use(const JobView& view) {
  if (!used.IsNew(Json(view).dump())) return;
  RequireKept(view);
  (void)control::IsFull(view);
  (void)control::AllHostsPrepared(view);
  (void)control::MismatchIsRipe(view, kNowMs);
  (void)control::MismatchError(view);
  (void)control::IsForgotten(view);
  (void)control::FailureOf(view.job);
  (void)control::RingFailure(view, kNowMs);
  if (control::IsRingOpen(view)) {
    for (const auto& member : view.members) (void)control::RingPeersFor(view, member.rank);
  }
  if (IsPlanned(view)) {
    UsePlan(view.job.plan);
    UseSilence(view);
  }
  UseEvents(view);
  Use(view, {});
}

void Use(const std::vector<HostRecord>& hosts) {
  JobView view;
  view.job.name = "planned";
  for (const HostRecord& host : hosts) {
    const int rank = view.job.world_size++;
    view.members.push_back(Member(rank, host.host));
    if (view.job.world_size == 4) break;
  }
  const std::vector<JobView> jobs = {PlannedJob()};
  const uint64_t now_ms = hosts.empty() ? kNowMs : hosts.front().heartbeat_ms;
  for (const bool is_spare : {false, true}) {
    if (is_spare && view.members.size() > 1) view.members.pop_back(), --view.job.world_size;
    const control::PlanInput input{&view, &hosts, &jobs, TheAddressing(), now_ms};
    (void)control::TaskOfPlanner(input);
    auto plan = control::MakePlan(input);
    if (!plan) continue;
    control::Number(*plan, {1, 1}, TheAddressing());
    JobView after = view;
    after.job.plan = *plan;
    after.job.state = control::kPreparing;
    RequireKept(after);
    UsePlan(*plan);
  }
}

void Use(const daemon::Snapshot& snapshot) {
  for (const JobView& view : snapshot.jobs) Use(view);
  Use(snapshot.hosts);
  auto shares = control::SharesOf(snapshot.jobs, kAgeing, kNowMs);
  for (const JobView& view : snapshot.jobs) {
    const auto share = shares.find(view.job.name);
    if (share != shares.end()) (void)control::GrantOf(share->second);
    JobView after = view;
    const control::Sight sight{0, 1 << 30, share == shares.end()};
    if (control::NoteProgress(after.job, sight, share == shares.end() ? nullptr : &share->second, kAgeing, kNowMs)) RequireKept(after);
  }
}

void Use(const JobView& view, const std::vector<daemon::Store::Counters>& counters) {
  (void)daemon::LevelsOf(view, counters, std::nullopt);
  (void)daemon::LevelsOf(view, counters, 0);
  (void)daemon::LagOfRanks(view, counters);
  (void)daemon::ActivityOf(view, counters);
}

}  // namespace mlnet::fuzz
