// SPDX-License-Identifier: Apache-2.0
// The spine of the tensor path: one turn takes calls, takes answers, sends, and looks at the clock.
//   submit -> partition -> [schedule -> quantize -> packetize -> window] -> transport
//          <- completion <- dequantize <- inbox            retransmit <- notices, time
// Why: single-threaded and driven from outside, so that a thread runs it in a training process and
// the simulator runs many of them in virtual time.
// Threads: Submit and Stats from any; all else from the one that calls RunOnce.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lane_base.h"

namespace mlnet::worker {

/// What one turn found.
struct Turn {
  bool has_progress = false;
  uint64_t next_ns = kNever;  // call again by then, even if nothing comes in
};

class Engine {
 public:
  /// `transport` and `control` outlive the engine.
  Engine(const EngineConfig& config, Transport& transport, ControlSink& control);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Places the collective in the order of its class. RunOnce must be called soon.
  std::shared_ptr<Work> Submit(const CollectiveSpec& spec);
  Turn RunOnce(uint64_t now_ns);
  /// Ends everything under way with `error`, and every later call at once.
  void Fail(const Error& error);
  /// From any thread.
  bool HasFailed();
  void SetRtoBounds(uint64_t min_ns, uint64_t max_ns);
  void SetGrant(const Grant& grant, uint64_t now_ns);
  /// The kernel of this host sums nothing any more, and its inbox stands still: takes what that has and stops, until the
  /// transport has a ring. Gives what this rank holds, by lane (ring/ring_lanes.h).
  std::vector<Held> Suspend(uint64_t now_ns);
  /// Tells the daemon which collective each class is at, unless a MISMATCH already made it do so: the
  /// rank whose packet came first gets no MISMATCH, but its side belongs into the message.
  void DescribeCurrent();
  /// Records what becomes of collectives from here on, or no more.
  void SetTracing(bool is_on);

  bool IsIdle() const;
  CommStats Stats() const { return counters_.Snapshot(); }
  Counters& counters() { return counters_; }
  const EngineConfig& config() const { return config_; }

 private:
  struct Submission {
    CollectiveSpec spec;
    std::shared_ptr<WorkState> work;
  };

  void CopyAlone(const CollectiveSpec& spec);
  std::optional<Error> Place(const CollectiveSpec& spec, const std::shared_ptr<WorkState>& work);
  template <typename LaneType>
  void MakeLanes();
  LaneBase* LaneOf(size_t tree, int traffic_class, int stream) const;
  std::optional<Error> Refusal(const CollectiveSpec& spec) const;
  std::optional<Error> ClassRefusal(const CollectiveSpec& spec);
  void Enqueue(const CollectiveSpec& spec, std::shared_ptr<WorkState> work, uint64_t now_ns);
  bool TakeSubmissions(uint64_t now_ns);
  bool TakeNotices(uint64_t now_ns);
  bool SendRound(uint64_t now_ns);
  void GiveUpIfNeeded(uint64_t now_ns);
  void ReportStats(uint64_t now_ns);
  void ReportTrace(uint64_t now_ns);
  void Ping(uint64_t now_ns);
  void ShareGrant(uint64_t now_ns);
  std::vector<LaneBase*> LanesInOrder() const;
  bool ResumeIfSettled();
  bool RunLanes(uint64_t now_ns);

  const EngineConfig config_;
  Transport& transport_;
  ControlSink& control_;
  Counters counters_;
  Recorder recorder_;
  SendBatch batch_;
  const std::vector<uint32_t> weights_;  // by tree
  std::array<uint64_t, MLNET_CLASSES_MAX> next_ordinal_{};
  // By stream, tree and class: fix-ups first, since they end collectives. Null: class not open.
  std::vector<std::unique_ptr<LaneBase>> lanes_;
  Grant grant_;
  size_t num_sharing_ = 0;  // busy lanes that the grant's window was last divided by
  std::array<std::vector<LaneBase*>, MLNET_CLASSES_MAX> lanes_by_class_;  // of lanes_, the highest class first
  size_t next_lane_ = 0;  // whose turn it is within a class
  uint64_t next_ping_ns_ = 0;
  uint64_t next_report_ns_ = 0;
  uint64_t reported_results_ = 0;
  uint64_t next_trace_ns_ = 0;
  bool has_trace_end_ = false;  // to be told
  bool is_suspended_ = false;   // between the kernel and the ring

  std::atomic<bool> has_submissions_{false};
  std::mutex mutex_;                     // guards the three members below
  std::vector<Submission> submissions_;  // in the order of the calls
  std::array<std::optional<bool>, MLNET_CLASSES_MAX> is_served_;  // by class: pushes and pulls, or all else; the first call decides
  std::optional<Error> failure_;         // written by the engine's thread
  std::vector<Submission> taken_;        // engine's thread only; keeps its capacity
};

}  // namespace mlnet::worker
