// SPDX-License-Identifier: Apache-2.0
#include "process_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "gil.h"
#include "staging.h"

namespace mlnet::torch_backend {
namespace {

// How long leaving waits for what is still in flight: enough for results that are on their way.
constexpr std::chrono::milliseconds kCloseGrace{2000};

}  // namespace

ProcessGroupMlnet::ProcessGroupMlnet(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                     std::chrono::milliseconds timeout, bool mac)
    : BackendBase(rank, size), membership_(JoinThroughStore(*store, rank, size, timeout, {.mac = mac})),
      finisher_(std::make_unique<Finisher>()), store_(store), fallback_(store, rank, size, timeout) {
#if TORCH_VERSION_MAJOR < 2
  init();
#endif
}

ProcessGroupMlnet::~ProcessGroupMlnet() { Close(); }

void ProcessGroupMlnet::Close() {
  const WithoutGil no_gil;
  const std::lock_guard<std::mutex> lock(close_mutex_);
  if (!finisher_) return;
  const bool idle = finisher_->WaitIdle(kCloseGrace);
  final_stats_ = {membership_.job, sequence_, fallback_.Counts(), membership_.comm->Stats()};
  // Still waiting for others: closing the communicator ends those collectives with E_CANCELLED.
  if (!idle) membership_.comm.reset();
  finisher_.reset();
  membership_.comm.reset();
  fallback_.Close();
}

GroupStats ProcessGroupMlnet::Stats() const {
  const std::lock_guard<std::mutex> lock(close_mutex_);
  if (!membership_.comm) return final_stats_;
  return {membership_.job, sequence_, fallback_.Counts(), membership_.comm->Stats()};
}

CallQueue& ProcessGroupMlnet::Comm() {
  if (!membership_.comm) throw std::runtime_error("mlnet: the process group is closed");
  return *membership_.comm;
}

uint64_t ProcessGroupMlnet::getSequenceNumberForGroup() { return sequence_; }

std::string ProcessGroupMlnet::Label(const std::string& collective) {
  return collective + " #" + std::to_string(sequence_++);
}

WorkPtr ProcessGroupMlnet::Submit(Pending pending) {
  auto work = c10::make_intrusive<MlnetWork>(getRank(), std::move(pending));
  finisher_->Add(work);
  return work;
}

}  // namespace mlnet::torch_backend
