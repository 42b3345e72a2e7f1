// SPDX-License-Identifier: Apache-2.0
// mlnetd: one thread that makes this host equal to what the store says, and answers its socket.
//   daemon.cc            start, event loop, stop
//   reconcile.cc         one pass: store -> maps, and the decisions of jobs
//   planning.cc          a job that has all its ranks gets its plan
//   rank_methods.cc      join, report, describe, abort, leave; a connection is a membership
//   operator_methods.cc  what mlnetctl asks
//   qos_methods.cc       the same: queues by priority
//   trace_methods.cc     the same: a timeline of what a job does
//   level_methods.cc     the same: what jobs do, level by level and at the moment
//   silence.cc           who has not been heard of
//   ring.cc              jobs that go on without a host that summed
//   shrink.cc            jobs that go on with the ranks that are left
//   order.cc             who uses the links where jobs meet
//   store_outage.cc      what goes on while the store does not answer
//   takeover.cc          jobs that an earlier daemon left running, and their ranks
// DESIGN.md beside this file has the loop, the states and the store's schema.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "control/config.h"
#include "control/liveness.h"
#include "control/order.h"
#include "daemon/fan_probe.h"
#include "daemon/ifaces.h"
#include "daemon/local_jobs.h"
#include "daemon/nic_state.h"
#include "daemon/qos.h"
#include "daemon/store.h"
#include "daemon/takeover.h"
#include "daemon/trace.h"
#include "datapath/events.h"
#include "datapath/pins.h"
#include "datapath/program.h"
#include "rpc/server.h"

namespace mlnet::daemon {

/// A local rank: a connection that called join.
struct RankSession {
  std::string job;
  uint64_t incarnation = 0;
  int rank = 0;
  uint32_t uid = 0;
  pid_t pid = 0;
  uint64_t request_id = 0;   // of the join that waits for its answer; 0: answered
  uint64_t joined_ms = 0;
  uint64_t deadline_ms = 0;
  bool was_told = false;     // that the job failed
  bool was_asked = false;    // what it is calling, after a mismatch
  uint64_t work_bytes = 0;   // as it said
  control::Json report;      // its latest counters
  uint64_t done_bytes = 0;   // of these
  uint64_t moved_ms = 0;     // when that last grew; 0: not yet
  control::Grant grant;      // as last told
  bool was_ring_opened = false;  // told to open a port for the ring
  bool was_ring_joined = false;  // told who its neighbours are
  bool has_news = false;     // report is not in the store yet
  struct Shrinking {
    uint64_t wait_ms = 0;           // for the others to ask, too
    uint64_t asked_ms = 0;          // this incarnation; 0: not yet
    std::vector<int> former_ranks;  // by rank in this incarnation: the rank in the one that the process knows; empty: the same
    std::string why;                // whom it has lost since
  };
  std::optional<Shrinking> shrinking;  // it has asked to go on with those who are left, and waits
  Fd process;                // pidfd: a forked child may keep the connection open
  uint64_t absent_until_ms = 0;  // it has no connection since the daemon was restarted, and is lost then; 0: it has one
};

/// A join that the store has not taken yet.
struct WaitingJoin {
  uint64_t request_id = 0;
  std::string job;
  control::JoinRequest request;
  uint64_t work_bytes = 0;
  uint32_t classes = 0;  // of a job that nobody declared; 0: this daemon's default
  bool mac = false;      // of a job that nobody declared
  uint64_t began_ms = 0;
  uint64_t deadline_ms = 0;
  int num_tries = 0;
};

/// What happened here to a job, and is not in the store yet.
struct News {
  std::string job;
  uint64_t incarnation = 0;
  std::function<void(control::JobView&)> change;  // may be made twice
};

class Daemon : private rpc::ServerHandler {
 public:
  static Result<std::unique_ptr<Daemon>> Start(const control::Config& config);
  ~Daemon() override;

  /// Until SIGTERM or SIGINT.
  Result<void> Run();
  /// Jobs go on in the kernel for the next daemon. This object must not be destroyed then: it would take them out.
  bool leaves_jobs() const { return leaves_jobs_; }

 private:
  Daemon(control::Config config, std::unique_ptr<Store> store, datapath::PinFolder pins, Loaded loaded);
  Result<void> Open();
  void OpenTagger();
  Result<void> Listen();
  int WaitMs() const;
  void EndDeadSessions();
  void Stop();
  bool LeaveJobs();
  Error StoppingError() const;

  // takeover.cc
  Result<void> TakeOverJobs();
  void AwaitRanks(const control::JobView& view);
  void EndAbsent();
  Result<void> OnAttach(rpc::PeerId peer, const rpc::PeerInfo& info, const rpc::Request& request);
  void TellAttached(rpc::PeerId peer, const RankSession& session);

  // reconcile.cc
  void Pass();
  void Refresh();
  void PublishHost();
  bool Step(const control::JobView& view);
  void RemoveGone();
  Result<void> CheckSlots(const control::JobView& view);
  bool InstallIfNeeded(const control::JobView& view);
  void AskForHops(const control::JobView& view, const std::vector<std::string>& addresses);
  bool FinishPreparing(const control::JobView& view);
  void ProbeGroup(const control::JobView& view, uint64_t nonce);
  bool Serve(const control::JobView& view);
  bool EndIfBroken(const control::JobView& view);
  bool CanJudgeHosts();
  void Uninstall(const std::string& name);
  void ServeSessions();
  void ServeSession(rpc::PeerId peer, RankSession& session, const control::JobView* view);
  void Beat();
  void BeatIfDue();
  void Flush();
  void OnProbe(const control::JobView& view, LocalJob& local, uint8_t tree);
  void OnEvent(const mlnet_event& event);
  const control::JobView* FindJob(const std::string& name) const;
  /// A write transaction on a job that must still be of this incarnation; true when it could be made.
  bool Change(const std::string& name, uint64_t incarnation, const std::function<void(control::JobView&)>& change);
  bool FailJob(const control::JobView& view, const Error& error, std::vector<int> ranks);

  // planning.cc
  bool PlanIfFull(const control::JobView& view);
  bool PlanRing(const control::JobView& view, const std::string& why);
  bool StartRing(control::JobView& view, const control::PlanInput& input, const std::string& why);

  // silence.cc
  void FindSilence();
  std::set<int> StoppedRanks(const std::string& job) const;
  void OnSilence(const control::JobView& view, const control::Loss& loss, uint64_t now_ns);
  void DeclareLost(const control::JobView& view, const control::Loss& loss);

  // ring.cc
  /// The job goes on without `host` where it can, else it fails with `error`.
  bool LoseHost(const control::JobView& view, const std::string& host, const Error& error);
  void TellSilentRoot(const control::JobView& view, const std::string& root, const Error& error);
  bool IsBarred(const control::JobView& view) const;
  void ServeRings();
  void ServeRing(rpc::PeerId peer, RankSession& session, const control::JobView& view);
  void OnRingPort(const RankSession& session, const rpc::Request& request);

  // shrink.cc
  Result<void> OnShrink(rpc::PeerId peer, const rpc::Request& request);
  void ServeShrinking(rpc::PeerId peer, RankSession& session, const control::JobView* view);
  void ServeFailed(rpc::PeerId peer, RankSession& session, const control::JobView& view);
  bool Follow(RankSession& session, const control::JobView& view) const;
  void RefuseShrink(rpc::PeerId peer, RankSession& session, const Error& why);

  // order.cc
  void OrderJobs();
  void TellGrants(const std::map<std::string, plan::LinkShare>& shares);
  void MarkJobs(const std::map<std::string, plan::LinkShare>& shares);
  control::Marks MarksOf(const control::JobView& view, const std::map<std::string, plan::LinkShare>& shares) const;
  uint32_t UidOf(const std::string& job) const;
  void NoteOwnJobs(const std::map<std::string, plan::LinkShare>& shares);

  // rank_methods.cc
  void OnRequest(rpc::PeerId peer, const rpc::PeerInfo& info, rpc::Request request) override;
  void OnClosed(rpc::PeerId peer) override;
  Result<void> OnJoin(rpc::PeerId peer, const rpc::PeerInfo& info, const rpc::Request& request);
  bool OnRankMethod(rpc::PeerId peer, const rpc::Request& request);
  Result<void> CheckQuota(const control::JoinRequest& request, const std::string& job) const;
  void OnDescribe(const RankSession& session, const rpc::Request& request);
  void OnAbort(const RankSession& session, const rpc::Request& request);
  void EndSession(rpc::PeerId peer, bool orderly);
  Fd WatchProcess(pid_t pid) const;
  void AnswerJoin(rpc::PeerId peer, RankSession& session, const control::JobView& view);

  // store_outage.cc
  void WarnOfStore(const std::string& what, const Error& error);
  /// A change that must not be lost: made now, or when the store answers again.
  void Tell(const std::string& job, uint64_t incarnation, std::function<void(control::JobView&)> change);
  void TellNews();
  Result<bool> TryJoin(rpc::PeerId peer, const WaitingJoin& join);
  void ServeWaitingJoins();
  void DropGhosts();
  Error StoreTimeout(const std::string& job, int rank, uint64_t began_ms) const;
  const RankSession* FindSession(const std::string& job, uint64_t incarnation, int rank) const;
  static bool IsMember(const control::JobView& view, const control::JoinRequest& request);

  // operator_methods.cc
  Result<control::Json> OperatorMethod(const rpc::Request& request);
  Result<control::Json> Status();
  Result<control::Json> IfaceAttach(const control::Json& params);
  Result<control::Json> IfaceDetach(const control::Json& params);
  Result<control::Json> JobCreate(const control::Json& params);
  Result<control::Json> JobSet(const control::Json& params);
  Result<control::Json> JobShow(const control::Json& params);
  Result<control::Json> JobDelete(const control::Json& params);
  Result<control::Json> Stats(const control::Json& params);
  Result<control::Json> PlanTask(const control::Json& params);
  Result<const control::JobView*> FreshJob(const std::string& name);
  Result<control::Json> ShowJob(const std::string& name);
  using Counters = std::vector<Store::Counters>;
  std::vector<Counters> CountersOf(const std::vector<const control::JobView*>& views);
  Result<void> UpdateKnownJob(const std::string& name, const std::function<Result<void>(control::JobView&)>& change);

  // qos_methods.cc
  Result<control::Json> QosSet(const control::Json& params);
  Result<control::Json> QosClear(const control::Json& params);
  Result<control::Json> QosShow(const control::Json& params);

  // trace_methods.cc
  Result<control::Json> TraceBegin(const control::Json& params);
  Result<control::Json> TraceTake(const control::Json& params);
  std::set<int> TellTracing(const std::string& job, bool is_on);
  void EndTraces();
  void OnTraced(const RankSession& session, const rpc::Request& request);

  // level_methods.cc
  Result<control::Json> JobLevels(const control::Json& params);
  Result<control::Json> Top(const control::Json& params);

  control::Config config_;
  std::unique_ptr<Store> store_;
  datapath::PinFolder pins_;
  datapath::Program program_;
  const bool takes_over_;  // what an earlier daemon left in the kernel
  NicState nic_state_;
  Qos qos_;
  Ifaces ifaces_;
  LocalJobs jobs_;
  std::optional<rpc::Server> server_;  // from when the host is in the store: who can connect can join
  std::optional<datapath::EventReader> events_;
  std::map<rpc::PeerId, RankSession> sessions_;  // absent ones have ids that no peer gets
  std::map<rpc::PeerId, WaitingJoin> waiting_;  // for the store
  std::deque<News> news_;
  std::map<std::string, control::Liveness> liveness_;  // of jobs that run here
  struct Suspicion {
    std::string root;       // whom this host does not hear; empty: nobody at all
    uint64_t since_ns = 0;  // CLOCK_MONOTONIC
  };
  std::map<std::string, Suspicion> suspicions_;  // by job: the other hosts have a while to say the same
  std::map<std::string, Trace> traces_;  // by job; for operators that look at the moment
  std::map<std::string, FanProbe> hop_probes_;  // of jobs that wait for the link address of a node above
  std::map<std::string, FanProbe> probes_;  // of jobs that are prepared and summed here
  std::map<std::string, control::JobSpec> policies_;  // as last told to local ranks
  Snapshot snapshot_;  // what is not over, and what local ranks joined
  std::string store_problem_;  // why it could not be read, as last logged
  std::string store_warning_;  // of what could not be written, as last logged
  uint64_t next_store_warning_ms_ = 0;
  control::HostRecord published_;
  bool is_published_ = false;
  Fd epoll_;
  Fd signals_;
  uint64_t started_ms_ = 0;
  bool can_judge_hosts_ = false;  // stays true
  bool was_silence_logged_ = false;
  bool leaves_jobs_ = false;
  uint64_t next_beat_ms_ = 0;
  uint64_t next_flush_ms_ = 0;
  uint64_t next_look_ns_ = 0;  // for silent members; CLOCK_MONOTONIC
  uint64_t next_reconcile_ms_ = 0;
};

/// Wall clock: heartbeats are compared between hosts.
inline uint64_t NowMs() { return WallMs(); }

/// 128 random bits as hexadecimal digits; "" where the kernel gives none.
std::string NewRingToken();

}  // namespace mlnet::daemon
