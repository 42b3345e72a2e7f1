// SPDX-License-Identifier: Apache-2.0
#include "mlnet/server.h"

#include "calls.h"
#include "session.h"

namespace mlnet {
namespace worker {
namespace {

class ServerImpl final : public Server {
 public:
  ServerImpl(const JoinOptions& options, std::unique_ptr<Session> session)
      : widens_lanes_(options.widens_lanes), session_(std::move(session)) {}

  int world_size() const override { return session_->config().world_size; }
  std::shared_ptr<Work> TakePush(void* sum, size_t count, DataType dtype, const CallOptions& options) override {
    return session_->Submit(PushSpec(Self(), nullptr, sum, count, dtype, options), options);
  }
  std::shared_ptr<Work> GivePull(const void* in, size_t bytes, const CallOptions& options) override {
    return session_->Submit(PullSpec(Self(), in, nullptr, bytes, options), options);
  }
  CommStats Stats() const override { return session_->Stats(); }

 private:
  Caller Self() const { return {world_size(), world_size(), widens_lanes_}; }

  const bool widens_lanes_;
  std::unique_ptr<Session> session_;
};

}  // namespace
}  // namespace worker

Result<std::unique_ptr<Server>> Server::Join(const JoinOptions& options) {
  if (auto valid = worker::CheckJoin(options); !valid) return tl::make_unexpected(valid.error());
  auto session = worker::Session::Join(options, /*is_server=*/true);
  if (!session) return tl::make_unexpected(session.error());
  return std::make_unique<worker::ServerImpl>(options, std::move(*session));
}

}  // namespace mlnet
