// SPDX-License-Identifier: Apache-2.0
// Client and server over a real socket: replies, errors, descriptors, pushes, and the ends of connections.
#include "rpc/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "rpc/client.h"
#include "unit/temp_folder.h"

namespace mlnet::rpc {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kLong{10000};

// Serves on a thread: echo, fail, fds, silent, push.
class Echo : public ServerHandler {
 public:
  explicit Echo(const std::string& path) : server_(std::move(*Server::Listen(path, 0600))), thread_([this] { Serve(); }) {}
  ~Echo() override {
    stop_ = true;
    thread_.join();
  }
  int num_closed() const { return num_closed_; }

 private:
  void Serve() {
    while (!stop_) {
      pollfd p{server_.poll_fd(), POLLIN, 0};
      ::poll(&p, 1, 10);
      server_.Dispatch(*this);
    }
  }
  void OnRequest(PeerId peer, const PeerInfo& info, Request request) override {
    if (request.method == "echo") {
      server_.Push(peer, {{"event", "before"}});
      server_.Reply(peer, request.id, {{"params", request.params}, {"pid", info.pid}});
    } else if (request.method == "fail") {
      server_.ReplyError(peer, request.id, Error{ErrorCode::kConflict, "busy", "wait"});
    } else if (request.method == "fds") {
      int pipe[2];
      ASSERT_EQ(::pipe(pipe), 0);
      const Fd read_end(pipe[0]), write_end(pipe[1]);
      server_.Reply(peer, request.id, Json::object(), pipe);
    } else if (request.method == "flood") {
      for (int i = 0; i < 500; ++i) server_.Push(peer, {{"event", "flood"}, {"i", i}, {"text", std::string(1000, 'x')}});
    } else if (request.method == "long") {
      server_.Reply(peer, request.id, {{"text", std::string(200'000, 'x')}});
    }
  }
  void OnClosed(PeerId) override { ++num_closed_; }

  Server server_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> num_closed_ = 0;
  std::thread thread_;
};

class RpcTest : public ::testing::Test {
 protected:
  const test::TempFolder folder_;
  const std::string path_ = folder_ / "sock";
  Echo echo_{path_};
  Client client_ = std::move(*Client::Connect(path_));
};

TEST_F(RpcTest, reply_carries_the_result_and_the_server_knows_the_process) {
  const auto result = client_.Call("echo", {{"a", 1}}, kLong);
  ASSERT_TRUE(result) << result.error().ToString();
  EXPECT_EQ((*result)["params"]["a"], 1);
  EXPECT_EQ((*result)["pid"], ::getpid());
}

TEST_F(RpcTest, push_that_arrives_during_a_call_is_kept) {
  ASSERT_TRUE(client_.Call("echo", Json::object(), kLong));
  const auto push = client_.NextPush();
  ASSERT_TRUE(push && *push);
  EXPECT_EQ((**push)["event"], "before");
  EXPECT_FALSE(*client_.NextPush());
}

TEST_F(RpcTest, error_comes_back_as_it_was) {
  const auto result = client_.Call("fail", Json::object(), kLong);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kConflict);
  EXPECT_EQ(result.error().message, "busy");
  EXPECT_EQ(result.error().hint, "wait");
}

TEST_F(RpcTest, descriptors_arrive_usable_and_close_on_exec) {
  auto reply = client_.CallWithFds("fds", Json::object(), kLong);
  ASSERT_TRUE(reply) << reply.error().ToString();
  ASSERT_EQ(reply->fds.size(), 2u);
  ASSERT_EQ(::write(reply->fds[1].get(), "x", 1), 1);
  char byte = 0;
  ASSERT_EQ(::read(reply->fds[0].get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_EQ(::fcntl(reply->fds[0].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_F(RpcTest, call_without_answer_times_out_by_name) {
  const auto result = client_.Call("silent", Json::object(), milliseconds(20));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(result.error().message, HasSubstr("'silent'"));
}

TEST_F(RpcTest, messages_to_a_slow_reader_wait_for_it) {
  ASSERT_TRUE(client_.Notify("flood", Json::object()));
  for (int i = 0; i < 500; ++i) {
    const auto push = client_.NextPush(kLong);
    ASSERT_TRUE(push && *push) << i;
    ASSERT_EQ((**push)["i"], i);
  }
}

TEST_F(RpcTest, answer_that_is_too_long_is_an_error_not_a_cut) {
  const auto result = client_.Call("long", Json::object(), kLong);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kProtocol);
}

TEST_F(RpcTest, closed_connection_is_told_to_the_owner) {
  ASSERT_TRUE(client_.Call("echo", Json::object(), kLong));
  { const Client gone = std::move(client_); }
  while (echo_.num_closed() == 0) std::this_thread::yield();
  EXPECT_EQ(echo_.num_closed(), 1);
}

TEST_F(RpcTest, second_server_on_the_same_socket_is_refused) {
  const auto second = Server::Listen(path_, 0600);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kConflict);
  EXPECT_TRUE(Client::Connect(path_));
}

TEST(rpc, stale_socket_is_replaced_and_has_the_mode_asked_for) {
  const test::TempFolder folder;
  const std::string path = folder / "sock";
  {
    auto first = Server::Listen(path, 0600);
    ASSERT_TRUE(first);
    std::filesystem::copy_file("/etc/hostname", path + ".other", std::filesystem::copy_options::overwrite_existing);
    ASSERT_EQ(::link(path.c_str(), (path + ".stale").c_str()), 0);
  }
  auto again = Server::Listen(path + ".stale", 0666);
  ASSERT_TRUE(again) << again.error().ToString();
  struct stat st;
  ASSERT_EQ(::stat((path + ".stale").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0666u);
  const auto file = Server::Listen(path + ".other", 0600);
  ASSERT_FALSE(file) << "a file that is no socket must not be removed";
  EXPECT_EQ(file.error().code, ErrorCode::kConflict);
}

TEST(rpc, nobody_listening_says_how_to_start_the_daemon) {
  const test::TempFolder folder;
  const auto client = Client::Connect(folder / "sock");
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(client.error().hint, HasSubstr("start mlnetd"));
}

TEST(rpc, path_that_does_not_fit_is_refused) {
  const auto client = Client::Connect("/tmp/" + std::string(200, 'x'));
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace mlnet::rpc
