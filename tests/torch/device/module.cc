// SPDX-License-Identifier: Apache-2.0
// The Python module mlnet_test_device: importing it makes torch.device("privateuseone") usable.
#include <pybind11/pybind11.h>

#include "journal.h"

namespace mlnet::test_device {
namespace {

namespace py = pybind11;

py::list Entries() {
  py::list list;
  for (const Entry& entry : TheJournal().All()) {
    list.append(py::make_tuple(entry.what, entry.bytes, entry.number, entry.stream));
  }
  return list;
}

bool WaitFor(const std::string& what, size_t count, int timeout_ms) {
  const py::gil_scoped_release no_gil;
  return TheJournal().WaitFor(what, count, std::chrono::milliseconds(timeout_ms));
}

}  // namespace
}  // namespace mlnet::test_device

PYBIND11_MODULE(mlnet_test_device, module) {
  namespace device = mlnet::test_device;
  module.def("journal", &device::Entries, "[(what, bytes, number, stream)], see journal.h");
  module.def("clear", [] { device::TheJournal().Clear(); });
  module.def("wait_for", &device::WaitFor, pybind11::arg("what"), pybind11::arg("count"), pybind11::arg("timeout_ms"));
  module.def("fail_after", [](int64_t copies) { device::TheJournal().FailAfter(copies); }, pybind11::arg("copies"));
}
