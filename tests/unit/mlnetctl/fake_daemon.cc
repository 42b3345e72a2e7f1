// SPDX-License-Identifier: Apache-2.0
#include "unit/mlnetctl/fake_daemon.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include <filesystem>
#include <stdexcept>

namespace mlnet::ctl {

FakeDaemon::FakeDaemon() : stop_(::eventfd(0, EFD_CLOEXEC)) {
  char folder[] = "/tmp/mlnetctl-test-XXXXXX";
  if (::mkdtemp(folder) == nullptr) throw std::runtime_error("mkdtemp");
  folder_ = folder;
  socket_ = folder_ + "/mlnetd.sock";
}

FakeDaemon::~FakeDaemon() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof(one)) != sizeof(one)) std::abort();
    thread_.join();
  }
  server_.reset();
  std::filesystem::remove_all(folder_);
}

void FakeDaemon::Start() {
  auto server = rpc::Server::Listen(socket_, 0600);
  if (!server) throw std::runtime_error(server.error().ToString());
  server_ = std::make_unique<rpc::Server>(std::move(*server));
  thread_ = std::thread([this] { Serve(); });
}

void FakeDaemon::Serve() {
  for (;;) {
    pollfd fds[] = {{server_->poll_fd(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) return;
    server_->Dispatch(*this);
  }
}

void FakeDaemon::OnRequest(rpc::PeerId peer, const rpc::PeerInfo&, rpc::Request request) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request.method + " " + request.params.dump());
  }
  const auto answer = answers_.find(request.method);
  if (answer == answers_.end()) return;
  const Result<Json> result = answer->second(request.params);
  if (result)
    server_->Reply(peer, request.id, *result);
  else
    server_->ReplyError(peer, request.id, result.error());
}

std::vector<std::string> FakeDaemon::requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

}  // namespace mlnet::ctl
