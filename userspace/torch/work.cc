// SPDX-License-Identifier: Apache-2.0
#include "work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <stdexcept>
#include <utility>

#include "fallback.h"

namespace mlnet::torch_backend {
namespace {

// DDP expects a list of tensors; only a gather of several inputs has a list per input.
c10::TypePtr FutureType(size_t num_outputs) {
  const c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
  return num_outputs > 1 ? c10::TypePtr(c10::ListType::create(tensors)) : tensors;
}

// What torch's profiler shows; the names are those of its own backends.
const char* TitleOf(c10d::OpType op) {
  switch (op) {
    case c10d::OpType::ALLREDUCE:
    case c10d::OpType::ALLREDUCE_COALESCED: return "mlnet:all_reduce";
    case c10d::OpType::REDUCE: return "mlnet:reduce";
    case c10d::OpType::REDUCE_SCATTER: return "mlnet:reduce_scatter";
    case c10d::OpType::BROADCAST: return "mlnet:broadcast";
    case c10d::OpType::ALLGATHER:
    case c10d::OpType::_ALLGATHER_BASE:
    case c10d::OpType::ALLGATHER_COALESCED: return "mlnet:all_gather";
    case c10d::OpType::GATHER: return "mlnet:gather";
    case c10d::OpType::SCATTER: return "mlnet:scatter";
    case c10d::OpType::ALLTOALL:
    case c10d::OpType::ALLTOALL_BASE: return "mlnet:all_to_all";
    case c10d::OpType::BARRIER: return "mlnet:barrier";
    case c10d::OpType::SEND: return "mlnet:send";
    case c10d::OpType::RECV: return "mlnet:recv";
    case c10d::OpType::RECVANYSOURCE: return "mlnet:recvAnySource";
    default: return nullptr;
  }
}

}  // namespace

PointToPointWork::PointToPointWork(int rank, c10d::OpType op, const Tensors& tensors, WorkPtr inner)
    : c10d::Work(rank, op, TitleOf(op), tensors), inner_(std::move(inner)) {}

bool PointToPointWork::wait(std::chrono::milliseconds timeout) {
  const bool done = inner_->wait(timeout);
  finish();
  return done;
}

MlnetWork::MlnetWork(int rank, Pending pending)
    : c10d::Work(rank, pending.op, TitleOf(pending.op), pending.inputs), pending_(std::move(pending)),
      future_(c10::make_intrusive<c10::ivalue::Future>(FutureType(pending_.outputs.size()))) {}

void MlnetWork::WaitForParts() {
  std::string failure;
  for (const auto& part : pending_.parts) {
    // All parts are waited for even when one has failed: the buffers must outlive them.
    if (auto done = part->Wait(); !done && failure.empty()) failure = done.error().ToString();
  }
  if (!failure.empty()) throw std::runtime_error("mlnet: " + pending_.label + ": " + failure);
  if (!pending_.delegated) return;
  try {
    pending_.delegated->wait();
  } catch (const std::exception& error) {
    throw std::runtime_error("mlnet: " + pending_.label + ", done by Gloo: " + error.what() + " (" + kNativeHelp + ")");
  }
}

c10::IValue MlnetWork::OutputValue() const {
  if (pending_.outputs.empty()) return c10::IValue(Tensors{});
  if (pending_.outputs.size() == 1) return c10::IValue(pending_.outputs[0]);
  return c10::IValue(pending_.outputs);
}

void MlnetWork::Complete() {
  std::exception_ptr failure;
  try {
    WaitForParts();
    if (pending_.finish) pending_.finish();
  } catch (...) {
    failure = std::current_exception();
  }
  pending_.finish = nullptr;
  pending_.parts.clear();
  pending_.delegated.reset();
  if (failure) {
    future_->setError(failure);
  } else {
    future_->markCompleted(OutputValue());
  }
  finish(failure);
}

bool MlnetWork::wait(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto done = [this] { return completed_; };
  if (timeout == kNoTimeout) {
    cv_.wait(lock, done);
  } else if (!cv_.wait_for(lock, timeout, done)) {
    throw std::runtime_error("mlnet: " + pending_.label + " is not done after the " +
                             std::to_string(timeout.count()) + " ms given to wait(); it goes on");
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

void MlnetWork::abort() {
  throw std::runtime_error("mlnet: a single collective cannot be aborted (destroy the process group instead)");
}

Tensors MlnetWork::result() {
  if (!isCompleted()) throw std::runtime_error("mlnet: " + pending_.label + " is not done yet (call wait() first)");
  if (pending_.outputs.size() > 1) {
    throw std::runtime_error("mlnet: result() has one list of tensors, " + pending_.label + " has several");
  }
  return pending_.outputs.empty() ? Tensors{} : pending_.outputs[0];
}

}  // namespace mlnet::torch_backend
