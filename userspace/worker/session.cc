// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <algorithm>
#include <cctype>

#include "mlnet/limits.h"

namespace mlnet::worker {
namespace {

constexpr size_t kJobNameMax = 63;

// Every cell a pool may use must be inside the inbox that was handed over.
Result<void> CheckCells(const EngineConfig& config, size_t num_cells) {
  const auto fits = [num_cells](const PoolConfig& pool) {
    return !pool.is_open || pool.cell_base + 2ULL * pool.slots() <= num_cells;
  };
  for (const TreeConfig& tree : config.trees) {
    if (std::all_of(tree.pools.begin(), tree.pools.end(), fits) &&
        std::all_of(tree.fixups.begin(), tree.fixups.end(), fits)) {
      continue;
    }
    return Err(ErrorCode::kProtocol, "mlnetd's inbox of " + std::to_string(num_cells) + " cells is too small",
               "run the same mlnet version of daemon and library");
  }
  return {};
}

}  // namespace

Result<void> CheckJoin(const JoinOptions& options) {
  const bool is_name = !options.job.empty() && options.job.size() <= kJobNameMax &&
                       std::all_of(options.job.begin(), options.job.end(), [](unsigned char c) {
                         return std::isalnum(c) || c == '.' || c == '_' || c == '-';
                       });
  if (!is_name) {
    return Err(ErrorCode::kInvalidArgument,
               "job name '" + options.job + "' is not 1 to 63 of [A-Za-z0-9._-]");
  }
  if (options.world_size < 1 || options.world_size > kRanksMax) {
    return Err(ErrorCode::kInvalidArgument,
               "world_size " + std::to_string(options.world_size) + " is not within 1.." + std::to_string(kRanksMax));
  }
  if (options.timeout.count() <= 0) {
    return Err(ErrorCode::kInvalidArgument, "timeout must be positive");
  }
  return {};
}

Session::Session(JoinReply reply, std::unique_ptr<ControlLink> control, std::unique_ptr<UdpTransport> transport)
    : shrunk_(std::move(reply.shrunk)),
      control_(std::move(control)),
      transport_(std::move(transport)),
      member_(reply.config, *transport_),
      engine_(reply.config, member_, *control_),
      port_(engine_, member_),
      thread_(engine_, transport_->inbox(), *control_, port_, std::move(reply.ring)) {}

Session::~Session() {
  const bool is_running = thread_.is_running();
  thread_.Stop();
  if (!is_running && control_) control_->Leave();
}

Result<std::unique_ptr<Session>> Session::Open(JoinReply reply, std::unique_ptr<ControlLink> control) {
  auto inbox = Inbox::Open(reply.inbox.get(), reply.wake.get(), reply.ring.get(), reply.local_index);
  if (!inbox) return tl::make_unexpected(inbox.error());
  if (auto fits = CheckCells(reply.config, inbox->num_cells()); !fits) return tl::make_unexpected(fits.error());
  auto transport = UdpTransport::Open(reply.endpoints, reply.config, std::move(*inbox));
  if (!transport) return tl::make_unexpected(transport.error());
  std::unique_ptr<Session> session(new Session(std::move(reply), std::move(control), std::move(*transport)));
  if (auto started = session->thread_.Start(); !started) return tl::make_unexpected(started.error());
  return session;
}

Result<std::unique_ptr<Session>> Session::Join(const JoinOptions& options, bool is_server) {
  auto control = ControlLink::Connect(options.socket);
  if (!control) return tl::make_unexpected(control.error());
  auto reply = (*control)->Join(options, is_server);
  if (!reply) return tl::make_unexpected(reply.error());
  return Open(std::move(*reply), std::move(*control));
}

Result<std::unique_ptr<Session>> Session::Shrink(const JoinOptions& options, const ShrinkOptions& shrink) {
  if (shrink.wait.count() < 0 || shrink.timeout <= shrink.wait) {
    return Err(ErrorCode::kInvalidArgument, "Shrink: wait is " + std::to_string(shrink.wait.count()) + " ms, timeout " +
                                                std::to_string(shrink.timeout.count()) + " ms: it must be longer than wait, which is 0 or more");
  }
  std::lock_guard lock(shrink_mutex_);
  if (!control_) return Err(ErrorCode::kInvalidArgument, "this communicator was shrunk before", "use the one that Shrink gave");
  if (!engine_.HasFailed()) {
    return Err(ErrorCode::kInvalidArgument, "job '" + options.job + "' has not failed: there is nothing to shrink", "call it after an error");
  }
  thread_.Release();
  auto reply = control_->Shrink(options, shrink, config().world_size);
  if (!reply) return tl::make_unexpected(reply.error());
  return Open(std::move(*reply), std::move(control_));
}

std::shared_ptr<Work> Session::Submit(const Result<CollectiveSpec>& spec, const CallOptions& options) {
  if (!spec) {
    auto refused = std::make_shared<WorkState>(options.on_done);
    refused->Complete(tl::make_unexpected(spec.error()));
    return refused;
  }
  auto work = engine_.Submit(*spec);
  thread_.Notify();
  return work;
}

}  // namespace mlnet::worker
