// SPDX-License-Identifier: Apache-2.0
// The Python extension mlnet._C: makes process groups and reads their counters.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>

#include "gil.h"
#include "process_group.h"

namespace mlnet::torch_backend {
namespace {

namespace py = pybind11;

ProcessGroupMlnet& AsMlnet(const c10::intrusive_ptr<BackendBase>& group) {
  auto* mine = dynamic_cast<ProcessGroupMlnet*>(group.get());
  if (mine == nullptr) {
    throw std::runtime_error("mlnet: this process group's backend is " + group->getBackendName() + ", not mlnet");
  }
  return *mine;
}

c10::intrusive_ptr<BackendBase> Create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                       std::chrono::milliseconds timeout) {
  const WithoutGil no_gil;
  return c10::make_intrusive<ProcessGroupMlnet>(store, rank, size, timeout);
}

void Close(const c10::intrusive_ptr<BackendBase>& group) { AsMlnet(group).Close(); }

py::dict StatsOf(const c10::intrusive_ptr<BackendBase>& group) {
  const GroupStats stats = AsMlnet(group).Stats();
  py::dict out;
  out["job"] = stats.job;
  out["collectives"] = stats.collectives;
  out["packets_sent"] = stats.comm.packets_sent;
  out["retransmits"] = stats.comm.retransmits;
  out["early_resends"] = stats.comm.early_resends;
  out["results"] = stats.comm.results;
  out["summed_in_kernel"] = stats.comm.summed_in_kernel;
  out["summed_in_user_space"] = stats.comm.summed_in_user_space;
  out["probes"] = stats.comm.probes;
  out["wide_blocks"] = stats.comm.wide_blocks;
  out["nonfinite_packets"] = stats.comm.nonfinite_packets;
  out["repairs"] = stats.comm.repairs;
  out["held"] = stats.comm.held;
  out["busy"] = stats.comm.busy;
  out["sleeps"] = stats.comm.sleeps;
  out["rtt_us"] = stats.comm.rtt_us;
  uint64_t total = 0;
  for (const auto& [request, calls] : stats.delegated) total += calls;
  out["delegated_calls"] = total;
  out["delegated"] = stats.delegated;
  return out;
}

WireType WireOf(const std::string& name) {
  for (const WireType wire : {WireType::kInt32, WireType::kInt16, WireType::kInt8}) {
    if (name == NameOf(wire)) return wire;
  }
  throw std::runtime_error("mlnet: wire type '" + name + "' is unknown (use int32, int16 or int8)");
}

WorkPtr AllReduceAs(const c10::intrusive_ptr<BackendBase>& group, const at::Tensor& tensor, const std::string& wire,
                    const c10::optional<at::Tensor>& residual, bool is_stochastic) {
  return AsMlnet(group).AllReduceAs(tensor, WireOf(wire), residual, is_stochastic);
}

void MonitoredBarrier(const c10::intrusive_ptr<BackendBase>& group, std::chrono::milliseconds timeout,
                      bool wait_all_ranks) {
  c10d::BarrierOptions options;
  options.timeout = timeout;
  AsMlnet(group).monitoredBarrier(options, wait_all_ranks);
}

}  // namespace
}  // namespace mlnet::torch_backend

PYBIND11_MODULE(_C, module) {
  namespace backend = mlnet::torch_backend;
  module.def("create", &backend::Create, pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"),
             pybind11::arg("timeout"));
  module.def("stats", &backend::StatsOf, pybind11::arg("group"));
  module.def("close", &backend::Close, pybind11::arg("group"));
  module.def("all_reduce", &backend::AllReduceAs, pybind11::arg("group"), pybind11::arg("tensor"),
             pybind11::arg("wire"), pybind11::arg("residual"), pybind11::arg("stochastic"),
             pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("monitored_barrier", &backend::MonitoredBarrier, pybind11::arg("group"), pybind11::arg("timeout"),
             pybind11::arg("wait_all_ranks"), pybind11::call_guard<pybind11::gil_scoped_release>());
  module.attr("__version__") = MLNET_VERSION;
}
