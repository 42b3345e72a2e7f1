// SPDX-License-Identifier: Apache-2.0
// The Python extension mlnet._C: makes process groups and reads their counters.
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <nlohmann/json.hpp>

#include "gil.h"
#include "process_group.h"
#include "schedule/tuner.h"
#include "scheduler.h"

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
                                       std::chrono::milliseconds timeout, bool mac) {
  const WithoutGil no_gil;
  return c10::make_intrusive<ProcessGroupMlnet>(store, rank, size, timeout, mac);
}

void Close(const c10::intrusive_ptr<BackendBase>& group) { AsMlnet(group).Close(); }

py::dict StatsDict(const CommStats& comm) {
  py::dict out;
  out["packets_sent"] = comm.packets_sent;
  out["retransmits"] = comm.retransmits;
  out["early_resends"] = comm.early_resends;
  out["results"] = comm.results;
  out["summed_in_kernel"] = comm.summed_in_kernel;
  out["summed_in_user_space"] = comm.summed_in_user_space;
  out["probes"] = comm.probes;
  out["wide_blocks"] = comm.wide_blocks;
  out["nonfinite_packets"] = comm.nonfinite_packets;
  out["repairs"] = comm.repairs;
  out["held"] = comm.held;
  out["busy"] = comm.busy;
  out["sleeps"] = comm.sleeps;
  out["rtt_us"] = comm.rtt_us;
  out["summed_in_ring"] = comm.summed_in_ring;
  out["marked"] = comm.marked;
  return out;
}

py::dict StatsOf(const c10::intrusive_ptr<BackendBase>& group) {
  const GroupStats stats = AsMlnet(group).Stats();
  py::dict out = StatsDict(stats.comm);
  out["job"] = stats.job;
  out["collectives"] = stats.collectives;
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

std::unique_ptr<Scheduler> MakeScheduler(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout,
                                         uint64_t partition_bytes, uint64_t credit_bytes, int classes,
                                         const c10::optional<std::string>& wire, bool mac) {
  SchedulerOptions options{partition_bytes, credit_bytes, classes, mac, std::nullopt};
  if (wire) options.wire = WireOf(*wire);
  return std::make_unique<Scheduler>(*store, rank, size, timeout, options);
}

void SetDemands(Scheduler& scheduler, const std::vector<std::pair<uint32_t, uint64_t>>& demands) {
  std::vector<schedule::TensorDemand> list;
  for (const auto& [priority, bytes] : demands) list.push_back({priority, bytes});
  scheduler.SetDemands(list);
}

py::list TakeTrace(Scheduler& scheduler) {
  py::list out;
  for (const ChunkTimes& t : scheduler.TakeTrace()) {
    out.append(py::make_tuple(t.task, t.offset, t.bytes, t.traffic_class, t.ready_ns, t.sent_ns, t.received_ns));
  }
  return out;
}

using SizePair = std::pair<uint64_t, uint64_t>;  // partition, credit

schedule::TunePoint PointOf(const SizePair& sizes) { return {sizes.first, sizes.second}; }

/// `state`: what state() gave in an earlier run of the same workload; anything else is as good as nothing.
schedule::Tuner MakeTuner(uint32_t settle_steps, uint32_t measure_steps, uint32_t num_trials, const SizePair& least, const SizePair& most,
                          const SizePair& start, const c10::optional<std::string>& state, const std::string& workload) {
  const schedule::TuneBounds bounds{PointOf(least), PointOf(most), PointOf(start), num_trials};
  schedule::Search search(bounds);
  if (state) {
    const auto json = nlohmann::json::parse(*state, nullptr, /*allow_exceptions=*/false);
    if (auto remembered = schedule::Search::FromJson(bounds, json, workload)) search = std::move(*remembered);
  }
  return {{.settle_steps = settle_steps, .measure_steps = measure_steps}, std::move(search)};
}

void DefineTuner(py::module& module) {
  py::class_<schedule::Tuner>(module, "Tuner")
      .def(py::init(&MakeTuner), py::arg("settle_steps"), py::arg("measure_steps"), py::arg("num_trials"), py::arg("least"), py::arg("most"),
           py::arg("start"), py::arg("state"), py::arg("workload"))
      .def_property_readonly("sizes", [](const schedule::Tuner& t) { return SizePair(t.point().partition_bytes, t.point().credit_bytes); })
      .def("end_step", &schedule::Tuner::EndStep)
      .def_property_readonly("cost_ns", &schedule::Tuner::cost_ns)
      .def("agree",
           [](schedule::Tuner& tuner, uint64_t cost_ns) {
             if (auto ok = tuner.Agree(cost_ns); !ok) throw std::runtime_error("mlnet: " + ok.error().ToString());
           })
      .def_property_readonly("is_settled", &schedule::Tuner::is_settled)
      .def_property_readonly("trials",
                             [](const schedule::Tuner& tuner) {
                               std::vector<std::tuple<uint64_t, uint64_t, uint64_t>> out;
                               for (const auto& t : tuner.search().trials()) out.emplace_back(t.point.partition_bytes, t.point.credit_bytes, t.cost_ns);
                               return out;
                             })
      .def("state", [](const schedule::Tuner& tuner, const std::string& workload) { return tuner.search().ToJson(workload).dump(); });
}

void DefineScheduler(py::module& module) {
  using Gilless = py::call_guard<py::gil_scoped_release>;
  py::class_<Scheduler>(module, "Scheduler")
      .def(py::init(&MakeScheduler), py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
           py::arg("partition_bytes"), py::arg("credit_bytes"), py::arg("classes"), py::arg("wire"), py::arg("mac"))
      .def("set_demands", &SetDemands)
      .def("set_sizes", &Scheduler::SetSizes, Gilless())
      .def("add", &Scheduler::Add, Gilless())
      .def("wait_for", &Scheduler::WaitFor, Gilless())
      .def("future_of",
           [](Scheduler& self, uint64_t task, const py::object& value) {
             // DDP wants what Python would have set.
             auto held = torch::jit::toIValue(value, c10::PyObjectType::get());
             return std::make_shared<torch::jit::PythonFutureWrapper>(self.FutureOf(task, std::move(held)));
           })
      .def("is_idle", &Scheduler::IsIdle)
      .def("set_trace", &Scheduler::SetTrace)
      .def("take_trace", &TakeTrace)
      .def_property_readonly("job", &Scheduler::job)
      .def("stats", [](const Scheduler& self) { return StatsDict(self.Stats()); });
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
             pybind11::arg("timeout"), pybind11::arg("mac"));
  module.def("stats", &backend::StatsOf, pybind11::arg("group"));
  module.def("close", &backend::Close, pybind11::arg("group"));
  module.def("all_reduce", &backend::AllReduceAs, pybind11::arg("group"), pybind11::arg("tensor"),
             pybind11::arg("wire"), pybind11::arg("residual"), pybind11::arg("stochastic"),
             pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("monitored_barrier", &backend::MonitoredBarrier, pybind11::arg("group"), pybind11::arg("timeout"),
             pybind11::arg("wait_all_ranks"), pybind11::call_guard<pybind11::gil_scoped_release>());
  backend::DefineScheduler(module);
  backend::DefineTuner(module);
  module.attr("__version__") = MLNET_VERSION;
}
