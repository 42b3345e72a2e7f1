// SPDX-License-Identifier: Apache-2.0
#include "daemon/trace.h"

#include <algorithm>

#include "mlnet/wire.h"

namespace mlnet::daemon {
namespace {

constexpr size_t kRowsMax = 200'000;       // of one look, about 100 MB
constexpr size_t kRunPackets = 16;         // in one row
constexpr uint64_t kLastWordsMs = 2'000;   // for ranks that do not answer

rpc::Json RowOf(const SumRun& run) {
  return {{"tree", run.tree},         {"class", MLNET_CLASS(run.class_stream)}, {"stream", MLNET_STREAM(run.class_stream)},
          {"first_seq", run.first_seq}, {"packets", run.after_ns.size()}, {"first_ns", run.first_ns}, {"waited_ns", run.waited_ns},
          {"after_ns", run.after_ns}};
}

}  // namespace

void Trace::Add(rpc::Json row) {
  if (rows_.size() < kRowsMax) rows_.push_back(std::move(row));
  else ++lost_;
}

void Trace::AddSum(const mlnet_event& event) {
  if (has_ended_) return;
  auto run = std::find_if(open_.begin(), open_.end(), [&](const SumRun& r) { return r.tree == event.tree && r.class_stream == event.class_stream; });
  if (run != open_.end() && event.seq == run->first_seq + run->after_ns.size() && run->after_ns.size() < kRunPackets) {
    run->after_ns.push_back(static_cast<int64_t>(event.time_ns - run->first_ns));
    return;
  }
  const SumRun next{event.tree, event.class_stream, event.seq, event.time_ns, event.a, {0}};
  if (run == open_.end()) {
    open_.push_back(next);
    return;
  }
  Add(RowOf(*run));
  *run = next;
}

void Trace::AddRecords(int rank, const rpc::Json& records, bool is_last) {
  if (records.is_array()) {
    for (const rpc::Json& record : records) {
      if (!record.is_object()) continue;
      rpc::Json row = record;
      row["rank"] = rank;
      Add(std::move(row));
    }
  }
  if (is_last) waits_for_.erase(rank);
}

void Trace::End(std::set<int> ranks) {
  CloseRuns();
  has_ended_ = true;
  waits_for_ = std::move(ranks);
}

void Trace::CloseRuns() {
  for (const SumRun& run : open_) Add(RowOf(run));
  open_.clear();
}

rpc::Json Trace::Take(size_t most, uint64_t now_ms) {
  rpc::Json rows = rpc::Json::array();
  while (!rows_.empty() && rows.size() < most) {
    rows.push_back(std::move(rows_.front()));
    rows_.pop_front();
  }
  const bool is_over = rows_.empty() && IsOver(now_ms);
  return {{"rows", std::move(rows)}, {"is_over", is_over}};
}

bool Trace::IsOver(uint64_t now_ms) const { return has_ended_ && (waits_for_.empty() || now_ms >= until_ms_ + kLastWordsMs); }

}  // namespace mlnet::daemon
