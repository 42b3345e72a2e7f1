// SPDX-License-Identifier: Apache-2.0
// The c10d handle of one collective: what it waits for, and what is left to do when that is done.
// Why: libmlnet's handles are waited for, c10d's complete by themselves (DDP chains on getFuture), so a
// Finisher thread waits in issue order and completes them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mlnet/communicator.h"
#include "torch_compat.h"

namespace mlnet::torch_backend {

/// One collective as the process group hands it over.
struct Pending {
  std::string label;                               // "all_reduce #12", for messages
  c10d::OpType op = c10d::OpType::UNKNOWN;
  Tensors inputs{};                                // what a profiler says the shapes of
  std::vector<std::shared_ptr<mlnet::Work>> parts{};  // what libmlnet does for it
  WorkPtr delegated{};                               // or what the inner Gloo group does
  std::function<void()> finish{};                    // copies back, divides; may be empty. Keeps the buffers alive
  std::vector<Tensors> outputs{};                    // the caller's tensors, for result() and the future
};

/// A send or receive of the inner Gloo group under mlnet's name for profilers.
class PointToPointWork final : public c10d::Work {
 public:
  PointToPointWork(int rank, c10d::OpType op, const Tensors& tensors, WorkPtr inner);

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override { inner_->abort(); }

 private:
  WorkPtr inner_;
};

class MlnetWork final : public c10d::Work {
 public:
  MlnetWork(int rank, Pending pending);

  /// Waits for the parts, finishes, and completes this work and its future. Called once, by the Finisher.
  void Complete();

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  void abort() override;
  Tensors result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  void WaitForParts();
  c10::IValue OutputValue() const;

  Pending pending_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace mlnet::torch_backend
