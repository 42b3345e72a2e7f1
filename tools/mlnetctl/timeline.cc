// SPDX-License-Identifier: Apache-2.0
#include "mlnetctl/timeline.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>

namespace mlnet::ctl {
namespace {

constexpr int kSumsProcess = 1'000'000;  // behind all ranks
constexpr int kRowsOfPool = 1'000;

using Pool = std::tuple<int, int, int>;  // tree, class, stream

Pool PoolOf(const Json& row) { return {row.value("tree", 0), row.value("class", 0), row.value("stream", 0)}; }

std::string NameOf(const Pool& pool) {
  const auto& [tree, traffic_class, stream] = pool;
  return (tree == 0 ? "" : "tree " + std::to_string(tree) + ", ") + "class " + std::to_string(traffic_class) + (stream == 0 ? "" : ", fix-up");
}

int ThreadOf(const Pool& pool) {
  const auto& [tree, traffic_class, stream] = pool;
  return ((tree * 2 + stream) * 8 + (7 - traffic_class)) * kRowsOfPool;  // the higher class above
}

// Spans that overlap stand on rows of their own: viewers draw only what nests.
class Rows {
 public:
  int Place(const Pool& pool, double begin, double end) {
    std::vector<double>& ends = ends_[pool];
    auto row = std::find_if(ends.begin(), ends.end(), [&](double e) { return e <= begin; });
    if (row == ends.end()) row = ends.insert(ends.end(), 0);
    *row = end;
    return ThreadOf(pool) + static_cast<int>(row - ends.begin());
  }
  void Name(int process, Json& events) const {
    for (const auto& [pool, ends] : ends_) {
      for (size_t i = 0; i < ends.size(); ++i) {
        const int thread = ThreadOf(pool) + static_cast<int>(i);
        events.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", process}, {"tid", thread}, {"args", {{"name", NameOf(pool)}}}});
        events.push_back({{"ph", "M"}, {"name", "thread_sort_index"}, {"pid", process}, {"tid", thread}, {"args", {{"sort_index", thread}}}});
      }
    }
  }

 private:
  std::map<Pool, std::vector<double>> ends_;
};

Json Span(const char* category, const std::string& name, int process, int thread, double begin, double end, Json args) {
  return {{"ph", "X"},      {"cat", category}, {"name", name},                          {"pid", process},
          {"tid", thread}, {"ts", begin},     {"dur", std::max(end - begin, 0.0)}, {"args", std::move(args)}};
}

Json ProcessName(int process, const std::string& name) {
  return {{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", name}}}};
}

// One host's clock, on the first one's.
class Clock {
 public:
  Clock(const Json& host, const Json& first) : shift_ns_(host.value("clock_offset_ns", int64_t{0}) - first.value("clock_offset_ns", int64_t{0})) {}
  double Us(const Json& row, const char* key) const {
    return static_cast<double>(static_cast<int64_t>(row.value(key, uint64_t{0})) + shift_ns_) / 1000.0;
  }

 private:
  int64_t shift_ns_;
};

/// A collective in one pool, as some rank saw it; seqs are the same on all ranks.
struct Known {
  std::string what;
  uint64_t first_seq = 0, packets = 0;
};
using KnownByPool = std::map<Pool, std::map<uint64_t, Known>>;  // by first seq

const Known* FindKnown(const KnownByPool& known, const Pool& pool, uint64_t seq) {
  const auto of_pool = known.find(pool);
  if (of_pool == known.end()) return nullptr;
  auto it = of_pool->second.upper_bound(seq);
  if (it == of_pool->second.begin()) return nullptr;
  const Known& found = (--it)->second;
  return seq < found.first_seq + found.packets ? &found : nullptr;
}

struct Summed {
  std::string what;
  double begin = 0, end = 0;
};
using SummedBySeq = std::map<std::pair<Pool, uint64_t>, Summed>;  // by the first seq of the collective; ~seq of the row where that is unknown

bool IsRank(const Json& row) { return row.contains("rank"); }

KnownByPool KnownOf(const Timeline& timeline) {
  KnownByPool known;
  for (const Json& host : timeline.hosts) {
    for (const Json& row : host["rows"]) {
      if (!IsRank(row)) continue;
      const uint64_t first = row.value("first_seq", uint64_t{0});
      known[PoolOf(row)][first] = {row.value("what", ""), first, row.value("packets", uint64_t{1})};
    }
  }
  return known;
}

SummedBySeq SummedOf(const Json& host, const Clock& clock, const KnownByPool& known) {
  SummedBySeq summed;
  for (const Json& row : host["rows"]) {
    if (IsRank(row) || !row.contains("after_ns") || !row["after_ns"].is_array()) continue;
    const Pool pool = PoolOf(row);
    const uint64_t first = row.value("first_seq", uint64_t{0});
    const double first_us = clock.Us(row, "first_ns");
    uint64_t seq = first;
    for (const Json& after_ns : row["after_ns"]) {
      const Known* of = FindKnown(known, pool, seq++);
      const double at = first_us + (after_ns.is_number() ? after_ns.get<double>() / 1000 : 0);
      const std::string what = of != nullptr ? of->what : "packets from " + std::to_string(first);
      auto [it, is_new] = summed.try_emplace({pool, of != nullptr ? of->first_seq : ~first}, Summed{what, at, at});
      it->second.begin = std::min(it->second.begin, at);
      it->second.end = std::max(it->second.end, at);
    }
  }
  return summed;
}

void AddRank(const Json& row, int process, const Clock& clock, Rows& rows, const std::vector<SummedBySeq>& summed, Json& events) {
  const Pool pool = PoolOf(row);
  const double called = clock.Us(row, "called_ns"), sent_first = clock.Us(row, "sent_first_ns"), sent_last = clock.Us(row, "sent_last_ns");
  const double received = clock.Us(row, "received_ns"), done = clock.Us(row, "done_ns");
  const int thread = rows.Place(pool, called, done);
  Json args = {{"class", std::get<1>(pool)}, {"tree", std::get<0>(pool)}, {"first_seq", row.value("first_seq", uint64_t{0})},
               {"packets", row.value("packets", uint64_t{0})}, {"bytes", row.value("bytes", uint64_t{0})}};
  for (const SummedBySeq& by_seq : summed) {
    const auto it = by_seq.find({pool, row.value("first_seq", uint64_t{0})});
    if (it == by_seq.end()) continue;
    args["summed_from_us"] = it->second.begin;
    args["summed_until_us"] = it->second.end;
  }
  events.push_back(Span("collective", row.value("what", ""), process, thread, called, done, std::move(args)));
  events.push_back(Span("phase", "queued", process, thread, called, sent_first, Json::object()));
  events.push_back(Span("phase", "sent", process, thread, sent_first, sent_last, Json::object()));
  events.push_back(Span("phase", "received", process, thread, sent_last, received, Json::object()));
}

void AddRanks(const Json& host, const Clock& clock, const std::vector<SummedBySeq>& summed, Json& events) {
  std::map<int, std::vector<const Json*>> by_rank;
  for (const Json& row : host["rows"]) {
    if (IsRank(row)) by_rank[row.value("rank", 0)].push_back(&row);
  }
  for (auto& [rank, of_rank] : by_rank) {
    std::stable_sort(of_rank.begin(), of_rank.end(), [](const Json* a, const Json* b) {
      return a->value("called_ns", uint64_t{0}) < b->value("called_ns", uint64_t{0});
    });
    Rows rows;
    for (const Json* row : of_rank) AddRank(*row, rank, clock, rows, summed, events);
    rows.Name(rank, events);
    events.push_back(ProcessName(rank, "rank " + std::to_string(rank) + " on " + host.value("host", "")));
  }
}

void AddSums(const Json& host, int process, const SummedBySeq& summed, Json& events) {
  if (summed.empty()) return;
  std::vector<std::pair<Pool, const Summed*>> in_order;
  for (const auto& [key, one] : summed) in_order.emplace_back(key.first, &one);
  std::stable_sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) { return a.second->begin < b.second->begin; });
  Rows rows;
  for (const auto& [pool, one] : in_order) {
    const int thread = rows.Place(pool, one->begin, one->end);
    events.push_back(Span("summed", one->what, process, thread, one->begin, one->end, Json::object()));
  }
  rows.Name(process, events);
  events.push_back(ProcessName(process, "sums of " + host.value("host", "")));
}

}  // namespace

Result<void> AddToTimeline(Timeline& timeline, const Json& file) {
  const auto is_array = [&](const char* key) { return file.is_object() && file.contains(key) && file[key].is_array(); };
  if (!is_array("traceEvents")) return Err(ErrorCode::kInvalidArgument, "it has no traceEvents", "give a file of mlnetctl trace or of mlnet.trace.save");
  if (!is_array("mlnet")) {
    for (const Json& event : file["traceEvents"]) timeline.others.push_back(event);
    return {};
  }
  for (const Json& host : file["mlnet"]) {
    if (!host.is_object() || !host.contains("rows") || !host["rows"].is_array()) return Err(ErrorCode::kInvalidArgument, "its part 'mlnet' is damaged");
    // Pools and sequence numbers are a job's own: another's would be taken for these.
    if (!timeline.hosts.empty() && host.value("name", "") != timeline.hosts.front().value("name", "")) {
      return Err(ErrorCode::kInvalidArgument, "it is of job '" + host.value("name", "") + "', not of '" + timeline.hosts.front().value("name", "") + "'",
                 "put files of one job together");
    }
    timeline.hosts.push_back(host);
  }
  if (file.contains("others") && file["others"].is_array()) {
    for (const Json& event : file["others"]) timeline.others.push_back(event);
  }
  return {};
}

Json RenderTimeline(const Timeline& timeline) {
  const KnownByPool known = KnownOf(timeline);
  std::vector<SummedBySeq> summed;
  std::vector<Clock> clocks;
  for (const Json& host : timeline.hosts) {
    clocks.emplace_back(host, timeline.hosts.front());
    summed.push_back(SummedOf(host, clocks.back(), known));
  }
  Json events = Json::array();
  for (size_t i = 0; i < timeline.hosts.size(); ++i) {
    AddRanks(timeline.hosts[i], clocks[i], summed, events);
    AddSums(timeline.hosts[i], kSumsProcess + static_cast<int>(i), summed[i], events);
  }
  for (const Json& event : timeline.others) events.push_back(event);
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}, {"mlnet", timeline.hosts}, {"others", timeline.others}};
}

}  // namespace mlnet::ctl
