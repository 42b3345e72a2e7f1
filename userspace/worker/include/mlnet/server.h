// SPDX-License-Identifier: Apache-2.0
// The server of a job: the process that gets what the ranks push, summed on the way, and gives what they pull.
// It runs on the host of the tree's root, and calls the counterparts of the ranks' Push and Pull in their order.
//
//   auto server = mlnet::Server::Join({.job = "demo", .world_size = 4});
//   (*server)->TakePush(sum.data(), sum.size(), mlnet::DataType::kFloat32)->Wait();
//   for (size_t i = 0; i < sum.size(); ++i) parameters[i] -= rate * sum[i];
//   (*server)->GivePull(parameters.data(), parameters.size() * sizeof(float))->Wait();
#pragma once

#include "mlnet/communicator.h"

namespace mlnet {

class Server {
 public:
  /// Blocks until all ranks of the job have joined. The job must have been created with a server. `rank` is not
  /// looked at; `small_bytes` and `widens_lanes` must be the ranks'.
  static Result<std::unique_ptr<Server>> Join(const JoinOptions& options);
  virtual ~Server() = default;

  virtual int world_size() const = 0;

  /// The sum of what all ranks push. `options` as theirs. Done when the ranks can be told so.
  virtual std::shared_ptr<Work> TakePush(void* sum, size_t count, DataType dtype, const CallOptions& options = {}) = 0;
  /// What all ranks pull. The bytes must not change before it is done.
  virtual std::shared_ptr<Work> GivePull(const void* in, size_t bytes, const CallOptions& options = {}) = 0;

  /// packets_sent: answers; retransmits: answers that a rank asked for again; results: sums and requests taken.
  virtual CommStats Stats() const = 0;
};

}  // namespace mlnet
