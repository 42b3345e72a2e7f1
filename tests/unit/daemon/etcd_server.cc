// SPDX-License-Identifier: Apache-2.0
#include "unit/daemon/etcd_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "base/fd.h"
#include "daemon/etcd_client.h"

namespace mlnet::test {
namespace {

namespace etcd = daemon::etcd;

uint16_t FreePort() {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin_port);
}

}  // namespace

EtcdServer::EtcdServer(std::vector<std::string> more, control::EtcdConfig client, const std::string& host)
    : more_(std::move(more)), client_(std::move(client)) {
  // Another process may take a port between the look and its use.
  for (int attempt = 0; attempt < 3 && !IsUp(); ++attempt) {
    url_ = std::string(client_.ca.empty() ? "http" : "https") + "://" + host + ":" + std::to_string(FreePort());
    peer_url_ = "http://127.0.0.1:" + std::to_string(FreePort());
    if (pid_ > 0) Signal(SIGKILL);
    WipeData();
    Start();
  }
}

EtcdServer::~EtcdServer() {
  if (pid_ > 0) Signal(SIGKILL);
}

void EtcdServer::Start() {
  std::vector<std::string> words = {"etcd", "--name=test", "--data-dir=" + (folder_ / "data"), "--listen-client-urls=" + url_,
                                    "--advertise-client-urls=" + url_, "--listen-peer-urls=" + peer_url_,
                                    "--initial-advertise-peer-urls=" + peer_url_, "--initial-cluster=test=" + peer_url_,
                                    "--heartbeat-interval=20", "--election-timeout=200"};
  words.insert(words.end(), more_.begin(), more_.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string log = folder_ / "etcd.log";
  pid_ = ::fork();
  ASSERT_GE(pid_, 0);
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!IsUp() && ::waitpid(pid_, nullptr, WNOHANG) == 0 && std::chrono::steady_clock::now() < deadline) ::poll(nullptr, 0, 10);
  EXPECT_TRUE(IsUp()) << "is etcd-server installed? see tools/install-deps\n" << Log();
}

bool EtcdServer::IsUp() const {
  return !url_.empty() && Post("kv/range", {{"key", etcd::ToBase64("x")}}).is_object();
}

void EtcdServer::Signal(int signal) {
  ::kill(pid_, signal);
  if (signal != SIGKILL && signal != SIGTERM) return;
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void EtcdServer::WipeData() {
  std::error_code ec;
  std::filesystem::remove_all(folder_ / "data", ec);
}

std::string EtcdServer::Log() const {
  std::ifstream file(folder_ / "etcd.log");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

control::EtcdConfig EtcdServer::NewStore() const {
  static int num_stores = 0;
  control::EtcdConfig config = client_;
  config.endpoints = {url_};
  config.prefix = "test" + std::to_string(++num_stores);
  return config;
}

control::Json EtcdServer::Post(const std::string& path, const control::Json& body) const {
  const auto options = etcd::Options::Read(NewStore());
  EXPECT_TRUE(options);
  const auto answer = etcd::Client(*options).Call(path, body);
  // Who needs certificates or a password is up when it refuses a client without.
  if (answer || etcd::IsOutage(answer.error())) return answer.value_or(control::Json(nullptr));
  return {{"refused", answer.error().message}};
}

std::vector<std::pair<std::string, std::string>> EtcdServer::All(const std::string& prefix) const {
  const auto answer = Post("kv/range", {{"key", etcd::ToBase64(prefix)}, {"range_end", etcd::ToBase64(etcd::EndOf(prefix))}});
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& kv : etcd::KeyValues(answer)) all.emplace_back(kv.key, kv.value);
  return all;
}

void EtcdServer::Put(const std::string& key, const std::string& value) const {
  EXPECT_TRUE(Post("kv/put", {{"key", etcd::ToBase64(key)}, {"value", etcd::ToBase64(value)}}).contains("header"));
}

EtcdServer& SharedEtcd() {
  static EtcdServer server;
  return server;
}

}  // namespace mlnet::test
