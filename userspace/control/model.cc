// SPDX-License-Identifier: Apache-2.0
// The records as JSON. Here and not in the header, where each file that looks at a job would make all of this anew.
#include "control/model.h"

// nlohmann-json's macro makes inline functions.
#define MLNET_JSON(Record, ...)                                          \
  namespace inlined {                                                     \
  NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Record, __VA_ARGS__)    \
  }                                                                       \
  void to_json(Json& json, const Record& record) { inlined::to_json(json, record); } \
  void from_json(const Json& json, Record& record) { inlined::from_json(json, record); }

namespace mlnet::control {

MLNET_JSON(IfaceRecord, name, address, prefix, mtu, aggregator, attached, rate_bps, address6, prefix6)
MLNET_JSON(HostRecord, host, instance, pid, port, slots_free, local_address, ifaces, rack, oversubscription, running, local_address6)
MLNET_JSON(JobSpec, slots, classes, multicast, shape, root, timeout_ms, deadline_ms, rto_min_us, rto_max_us, window_first, weight, order,
           work_bytes, ceiling, lost_ms, require_mode, mac)
MLNET_JSON(JobProgress, work_bytes, done_bytes, is_moving, is_in_front, is_overdue, since_ms, waited_ms, served_ms)
MLNET_JSON(PlanPort, host, iface, address, local_address)
MLNET_JSON(PlanNode, port, parent)
MLNET_JSON(PlanTree, weight, nodes)
MLNET_JSON(Plan, job_id, epoch, port, shape, why, ports, trees, group, blocks, log2_slots, classes, host_of_rank, server_host)
MLNET_JSON(RingRecord, began_ms, why, token)
MLNET_JSON(ShrinkRecord, from, world_size_full, lost, lost_hosts, why, given_up)
MLNET_JSON(JobRecord, name, incarnation, state, world_size, declared, deleted, spec, progress, plan, job_id, fan, fan_why, key, uid,
           opened_ms, planned_ms, failed_ms, mismatch_ms, failed_joining, code, reason, hint, ranks, ring, shrunk)
MLNET_JSON(MemberRecord, incarnation, rank, host, pid, connected, left, fingerprint, collective, pings, uid, rings, ring_port, goes_on,
           former_rank)
MLNET_JSON(JobHostRecord, incarnation, host, prepared, multicast_seen, serving, silent_root)
MLNET_JSON(JobView, job, members, hosts)

}  // namespace mlnet::control
