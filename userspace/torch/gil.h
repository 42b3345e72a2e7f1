// SPDX-License-Identifier: Apache-2.0
// Lets go of Python's lock while waiting, where the thread holds it at all.
// Why: a group may be destroyed from Python or from C++, and waiting for the Finisher with the lock held would
// hang if a future's Python callback is still to run there.
#pragma once

#include <Python.h>

namespace mlnet::torch_backend {

class WithoutGil {
 public:
  WithoutGil() : state_(Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace mlnet::torch_backend
