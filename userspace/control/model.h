// SPDX-License-Identifier: Apache-2.0
// What the store holds: hosts, jobs, members, and how far each host is with each job. Plain values; all
// daemons read the same ones, so every decision made from them is the same wherever it is made.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mlnet/error.h"

namespace mlnet::control {

using Json = nlohmann::json;

struct IfaceRecord {
  std::string name;
  std::string address;  // IPv4; in the eyes of the planner: of the job's family
  int prefix = 0;
  int mtu = 0;
  bool aggregator = false;
  bool attached = false;
  uint64_t rate_bps = 0;  // of each direction; 0: not known
  std::string address6{};  // IPv6
  int prefix6 = 0;
};

struct HostRecord {
  std::string host;
  std::string instance;
  int pid = 0;
  uint16_t port = 0;
  uint32_t slots_free = 0;  // longest free run in ml_slots
  std::string local_address;  // where ranks of this host reach its own aggregator; empty: not at all
  std::vector<IfaceRecord> ifaces;
  std::string rack;             // empty: plugged into the core
  double oversubscription = 0;  // of the core, as this host was told; 0: not at all
  bool running = false;     // false after an orderly stop
  uint64_t heartbeat_ms = 0;  // a column of its own: beats must not look like changes
  std::string local_address6{};  // as local_address, for jobs with IPv6
};

/// What an operator may set per job.
struct JobSpec {
  uint32_t slots = 256;  // P of every class
  uint32_t classes = 2;
  std::string multicast = "auto";
  std::string shape = "auto";  // who sums, see plan.h
  std::string root = "reflect";  // or "server": a process on the root's host joins too, and answers pushes and pulls
  uint32_t timeout_ms = 30000;
  uint32_t deadline_ms = 0;
  uint32_t rto_min_us = 1000;
  uint32_t rto_max_us = 200000;
  uint32_t window_first = 32;
  uint32_t weight = 1;          // of its share where jobs meet
  std::string order = "fair";   // or shortest: it takes turns with others of this kind (plan/job_order.h)
  uint64_t work_bytes = 0;      // what each rank transfers in all; 0: as the ranks say
  uint32_t lost_ms = 700;       // a rank or host that has not been heard of for so long is lost; 0: only by other signs
  uint32_t ceiling = 7;         // packets of more urgent traffic classes are marked as this one
  std::string require_mode = "any";  // or "kernel": it fails rather than go on in user space (ring.h)
  bool mac = false;             // all packets carry a tag made with the key of the job
};

/// What the order of jobs depends on (order.h); noted by the host of rank 0, and only when something turns.
struct JobProgress {
  uint64_t work_bytes = 0;  // 0: nobody knows
  uint64_t done_bytes = 0;
  bool is_moving = false;
  bool is_in_front = false;
  bool is_overdue = false;
  uint64_t since_ms = 0;   // the last turn; the two below are as of then
  uint64_t waited_ms = 0;
  uint64_t served_ms = 0;  // in front
};

/// A NIC that the job uses.
struct PlanPort {
  std::string host;
  std::string iface;
  std::string address;
  std::string local_address;  // where ranks on the same host reach its own node; empty: it has none
};

/// A host in a tree. Whether it is a node that sums follows from what is below it (tree.h).
struct PlanNode {
  size_t port = 0;  // index into Plan::ports
  int parent = -1;  // index into PlanTree::nodes; -1: the root
};

struct PlanTree {
  uint32_t weight = 1;          // share of large calls
  std::vector<PlanNode> nodes;  // the root first; all hosts with ranks, and those that sum between them and the root
};

struct Plan {
  uint16_t job_id = 0;
  uint16_t epoch = 0;
  uint16_t port = 0;
  std::string shape;  // what was chosen, and why
  std::string why;
  std::vector<PlanPort> ports;
  std::vector<PlanTree> trees;  // by tree number
  std::string group;
  uint32_t blocks = 0;
  uint32_t log2_slots = 0;
  uint32_t classes = 0;
  std::vector<std::string> host_of_rank;
  std::string server_host;  // the root of the only tree; empty: the job has no server
};

/// The ring of ranks that took over from a lost host (ring.h).
struct RingRecord {
  uint64_t began_ms = 0;  // 0: the kernel sums
  std::string why;        // who was lost
  std::string token;      // shows that who connects belongs to the job; never shown
};

/// What a job goes on from that has lost ranks (shrink.h).
struct ShrinkRecord {
  uint64_t from = 0;        // the incarnation that failed; 0: all ranks joined it
  int world_size_full = 0;  // as declared, or as the first rank said
  std::vector<int> lost;    // whom it goes on without, by their ranks in that incarnation
  std::vector<std::string> lost_hosts;  // those of them without a rank that goes on
  std::string why;          // who was lost, and how
  std::string given_up;     // of a job that failed: who did not ask to go on in time
};

inline constexpr const char* kJoining = "joining";
inline constexpr const char* kPreparing = "preparing";
inline constexpr const char* kReady = "ready";
inline constexpr const char* kFailed = "failed";
inline constexpr const char* kClosed = "closed";

struct JobRecord {
  std::string name;
  uint64_t incarnation = 0;  // one per life of the name; members of another one are history
  std::string state = kJoining;
  int world_size = 0;  // 0: the first rank decides
  bool declared = false;  // by job.create: survives without members
  bool deleted = false;   // goes away when its last rank is gone
  JobSpec spec;
  JobProgress progress;
  Plan plan;
  uint16_t job_id = 0;  // of the latest plan; reused by the next one with a higher epoch
  std::string fan;      // how results travel; empty: not decided
  std::string fan_why;
  std::string key;      // of the plan, 32 hex digits; its tags are made with what is derived from it. Never shown
  uint32_t uid = 0;     // of the rank that came first: whose job it is
  uint64_t opened_ms = 0;
  uint64_t planned_ms = 0;
  uint64_t failed_ms = 0;
  uint64_t mismatch_ms = 0;  // first sign of different collectives; 0: none
  bool failed_joining = false;
  std::string code;  // of the failure
  std::string reason;
  std::string hint;
  std::vector<int> ranks;  // who caused it
  RingRecord ring;
  ShrinkRecord shrunk;
};

inline constexpr int kServerRank = -1;  // of the job's server, a member like the ranks

inline constexpr uint32_t kUidUnknown = 0xffffffff;  // no user has this one

struct MemberRecord {
  uint64_t incarnation = 0;
  int rank = 0;
  std::string host;
  int pid = 0;
  bool connected = false;
  bool left = false;  // orderly
  uint32_t fingerprint = 0;
  std::string collective;  // its answer after a mismatch
  bool pings = false;      // shows the nodes above that it lives
  uint32_t uid = kUidUnknown;  // of its process
  bool rings = false;          // can go on in a ring, and may
  uint16_t ring_port = 0;      // where it listens for that; 0: not yet
  bool goes_on = false;        // of a job that failed: asks to go on with those who are left
  int former_rank = -1;        // of a job that goes on: in the incarnation that failed
};

/// How far one host is with one job.
struct JobHostRecord {
  uint64_t incarnation = 0;
  std::string host;
  bool prepared = false;        // maps and table entry are in place
  uint32_t multicast_seen = 0;  // bit per tree: a probe of its root came in by the group
  bool serving = false;         // the trees it sums send results the way that was decided
  std::string silent_root{};      // whom it has not heard of for too long, of the roots
};

/// A job with everything that belongs to its present incarnation.
struct JobView {
  JobRecord job;
  std::vector<MemberRecord> members;  // by rank
  std::vector<JobHostRecord> hosts;
};

/// All of them as JSON, for the store and between hosts; what is not there has its default value. Throws Json::exception where a type is wrong.
void to_json(Json& json, const IfaceRecord& record);
void from_json(const Json& json, IfaceRecord& record);
void to_json(Json& json, const HostRecord& record);
void from_json(const Json& json, HostRecord& record);
void to_json(Json& json, const JobSpec& record);
void from_json(const Json& json, JobSpec& record);
void to_json(Json& json, const JobProgress& record);
void from_json(const Json& json, JobProgress& record);
void to_json(Json& json, const PlanPort& record);
void from_json(const Json& json, PlanPort& record);
void to_json(Json& json, const PlanNode& record);
void from_json(const Json& json, PlanNode& record);
void to_json(Json& json, const PlanTree& record);
void from_json(const Json& json, PlanTree& record);
void to_json(Json& json, const Plan& record);
void from_json(const Json& json, Plan& record);
void to_json(Json& json, const RingRecord& record);
void from_json(const Json& json, RingRecord& record);
void to_json(Json& json, const ShrinkRecord& record);
void from_json(const Json& json, ShrinkRecord& record);
void to_json(Json& json, const JobRecord& record);
void from_json(const Json& json, JobRecord& record);
void to_json(Json& json, const MemberRecord& record);
void from_json(const Json& json, MemberRecord& record);
void to_json(Json& json, const JobHostRecord& record);
void from_json(const Json& json, JobHostRecord& record);
void to_json(Json& json, const JobView& record);
void from_json(const Json& json, JobView& record);

}  // namespace mlnet::control
