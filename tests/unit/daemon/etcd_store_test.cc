// SPDX-License-Identifier: Apache-2.0
// What only the cluster store has: watches, outages, answers that are lost, leases, passwords and certificates. Against
// a real etcd.
#include "daemon/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <fstream>

#include "mlnet/limits.h"
#include "unit/daemon/etcd_server.h"
#include "unit/daemon/lossy_proxy.h"

namespace mlnet::daemon {
namespace {

using control::JobView;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::EtcdServer;
using ::testing::HasSubstr;

std::unique_ptr<Store> Open(const control::EtcdConfig& config) {
  auto store = EtcdStore::Open(config);
  EXPECT_TRUE(store) << store.error().ToString();
  return std::move(*store);
}

Result<void> Raise(Store& store, const std::string& name = "demo") {
  return store.UpdateJob(name, [&](std::optional<JobView>& view) -> Result<void> {
    if (!view) view.emplace();
    view->job.name = name;
    view->job.incarnation = 7;
    view->job.world_size = view->job.world_size % kRanksMax + 1;
    return {};
  });
}

control::HostRecord Host(const std::string& name, uint64_t heartbeat_ms) {
  control::HostRecord host;
  host.host = name;
  host.heartbeat_ms = heartbeat_ms;
  host.running = true;
  return host;
}

uint64_t NowMs() {
  using namespace std::chrono;
  return static_cast<uint64_t>(duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count());
}

uint16_t PortOf(const EtcdServer& server) { return static_cast<uint16_t>(std::stoi(server.url().substr(server.url().rfind(':') + 1))); }

bool WaitUntil(const std::function<bool()>& condition, milliseconds timeout = std::chrono::seconds(15)) {
  const auto deadline = steady_clock::now() + timeout;
  while (!condition()) {
    if (steady_clock::now() >= deadline) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

milliseconds Took(const std::function<void()>& what) {
  const auto begin = steady_clock::now();
  what();
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin);
}

bool IsReadable(int fd, int timeout_ms) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, timeout_ms) == 1;
}

TEST(etcd_store, daemon_is_woken_by_what_another_one_writes) {
  const auto config = test::SharedEtcd().NewStore();
  const auto a = Open(config), b = Open(config);
  std::vector<milliseconds> delays;
  for (int i = 0; i < 7; ++i) {
    auto seen = b->Load();
    ASSERT_TRUE(seen);
    ASSERT_TRUE(b->Changed(*seen)) << "clears the descriptor";
    ASSERT_TRUE(Raise(*a));
    delays.push_back(Took([&] { EXPECT_TRUE(WaitUntil([&] { return IsReadable(b->wake_fd(), 100) && *b->Changed(*seen); })); }));
  }
  std::sort(delays.begin(), delays.end());
  EXPECT_LT(delays[3], milliseconds{300}) << "by the watch, not by the read once a second";
}

TEST(etcd_store, outage_costs_one_call_its_time_and_ends_by_itself) {
  EtcdServer server;
  const auto store = Open(server.NewStore());
  ASSERT_TRUE(Raise(*store));
  const auto seen = store->Load();
  server.Signal(SIGSTOP);
  Result<void> failed;
  EXPECT_LT(Took([&] { failed = Raise(*store); }), milliseconds{2500});
  ASSERT_FALSE(failed);
  EXPECT_TRUE(IsNoAnswer(failed.error())) << failed.error().ToString();
  EXPECT_THAT(failed.error().message, HasSubstr("no answer from the store at " + server.url()));
  EXPECT_THAT(store->Outage(), HasSubstr(server.url()));
  EXPECT_LT(Took([&] {
    for (int i = 0; i < 50; ++i) EXPECT_FALSE(store->Load());
  }), milliseconds{500}) << "nobody waits for what is known not to answer";
  EXPECT_TRUE(IsNoAnswer(store->Changed(*seen).error()));
  server.Signal(SIGCONT);
  EXPECT_TRUE(IsReadable(store->wake_fd(), 10'000));
  ASSERT_TRUE(WaitUntil([&] { return store->Outage().empty(); }));
  EXPECT_TRUE(Raise(*store));
}

TEST(etcd_store, outage_is_noticed_by_a_store_that_nobody_asks) {
  EtcdServer server;
  const auto store = Open(server.NewStore());
  server.Signal(SIGKILL);
  EXPECT_TRUE(WaitUntil([&] { return !store->Outage().empty(); }));
  server.Start();
  EXPECT_TRUE(WaitUntil([&] { return store->Outage().empty(); }));
}

TEST(etcd_store, change_by_another_one_during_an_outage_is_seen_after_it) {
  EtcdServer server;
  const auto config = server.NewStore();
  const auto a = Open(config), b = Open(config);
  ASSERT_TRUE(Raise(*a));
  const auto seen = b->Load();
  server.Signal(SIGKILL);
  ASSERT_TRUE(WaitUntil([&] { return !b->Outage().empty(); }));
  server.Start();
  ASSERT_TRUE(WaitUntil([&] { return a->Outage().empty() && Raise(*a); }));
  EXPECT_TRUE(WaitUntil([&] { return b->Changed(*seen).value_or(false); }));
  EXPECT_EQ(b->Load()->jobs.at(0).job.world_size, 2);
}

TEST(etcd_store, endpoint_that_is_dead_is_passed_over) {
  EtcdServer dead;
  auto config = test::SharedEtcd().NewStore();
  config.endpoints.insert(config.endpoints.begin(), dead.url());
  dead.Signal(SIGKILL);
  const auto store = Open(config);
  EXPECT_TRUE(Raise(*store));
  EXPECT_EQ(store->Outage(), "");
}

TEST(etcd_store, is_reached_by_ipv6_too) {
  EtcdServer server({}, {}, "[::1]");
  const auto a = Open(server.NewStore());
  ASSERT_TRUE(Raise(*a));
  EXPECT_EQ(a->Load()->jobs.at(0).job.world_size, 1);
}

TEST(etcd_store, change_whose_answer_was_lost_is_made_once) {
  EtcdServer server;
  test::LossyProxy proxy("127.0.0.1", PortOf(server));
  auto config = server.NewStore();
  config.endpoints.insert(config.endpoints.begin(), "http://127.0.0.1:" + std::to_string(proxy.port()));
  const auto store = Open(config);
  ASSERT_TRUE(Raise(*store));
  for (int i = 2; i < 6; ++i) {
    proxy.Lose("request_put");
    int num_calls = 0;
    const auto done = store->UpdateJob("demo", [&](std::optional<JobView>& view) -> Result<void> {
      ++num_calls;
      ++view->job.world_size;
      return Err(ErrorCode::kMismatch, "the answer of the change");
    });
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message, "the answer of the change");
    EXPECT_EQ(store->Load()->jobs.at(0).job.world_size, i);
    EXPECT_EQ(num_calls, 1);
  }
  EXPECT_GE(proxy.num_lost(), 1);
}

TEST(etcd_store, hosts_that_lived_before_an_outage_get_time_to_show_it_after) {
  EtcdServer server;
  const auto store = Open(server.NewStore());
  const uint64_t before_ms = NowMs();
  ASSERT_TRUE(store->SaveHost(Host("alive", before_ms - 9'000)));
  ASSERT_TRUE(store->SaveHost(Host("dead", before_ms - 60'000)));
  EXPECT_EQ(store->LoadHosts()->at(0).heartbeat_ms, before_ms - 9'000);
  server.Signal(SIGKILL);
  ASSERT_TRUE(WaitUntil([&] { return !store->Outage().empty(); }));
  const uint64_t healed_ms = NowMs();
  server.Start();
  ASSERT_TRUE(WaitUntil([&] { return store->Outage().empty(); }));
  const auto hosts = store->LoadHosts();
  ASSERT_TRUE(hosts);
  EXPECT_GE(hosts->at(0).heartbeat_ms, healed_ms);
  EXPECT_EQ(hosts->at(1).heartbeat_ms, before_ms - 60'000);
}

TEST(etcd_store, full_etcd_is_an_outage_although_it_reads) {
  EtcdServer server({"--quota-backend-bytes=4194304"});
  auto config = server.NewStore();
  config.compact_s = 0;
  const auto store = Open(config);
  ASSERT_TRUE(store->SaveHost(Host("w1", 1)));
  const std::string filler(500'000, 'x');
  ASSERT_TRUE(WaitUntil([&] {
    return server.Post("kv/put", {{"key", etcd::ToBase64("filler")}, {"value", etcd::ToBase64(filler)}}).is_null();
  }));
  const auto full = store->Beat("w1", 2);
  ASSERT_FALSE(full);
  EXPECT_TRUE(IsNoAnswer(full.error()));
  EXPECT_THAT(full.error().message, HasSubstr("space exceeded"));
  EXPECT_FALSE(WaitUntil([&] { return store->Outage().empty(); }, milliseconds{1500})) << "by what it reads";
  const auto revision = server.Post("kv/range", {{"key", etcd::ToBase64("x")}})["header"]["revision"];
  server.Post("kv/compaction", {{"revision", revision}, {"physical", true}});
  server.Post("maintenance/defragment", control::Json::object());
  const auto alarms = server.Post("maintenance/alarm", {{"action", "GET"}})["alarms"];
  server.Post("maintenance/alarm", {{"action", "DEACTIVATE"}, {"alarm", "NOSPACE"}, {"memberID", alarms[0]["memberID"]}});
  EXPECT_TRUE(WaitUntil([&] { return store->Outage().empty(); }));
  EXPECT_TRUE(store->Beat("w1", 3));
}

TEST(etcd_store, rows_of_a_host_go_with_its_lease_and_come_back_with_its_heartbeat) {
  EtcdServer server;
  const auto config = server.NewStore();
  const auto store = Open(config);
  ASSERT_TRUE(store->SaveHost(Host("w1", 1)));
  ASSERT_TRUE(Raise(*store));
  const auto revoke_all = [&] {
    const auto leases = server.Post("lease/leases", control::Json::object());
    for (const auto& lease : leases.value("leases", control::Json::array())) server.Post("lease/revoke", {{"ID", lease["ID"]}});
    ASSERT_TRUE(server.All(config.prefix + "/hosts/").empty());
  };
  revoke_all();
  ASSERT_TRUE(store->Beat("w1", 77));
  EXPECT_EQ(store->LoadHosts()->at(0).heartbeat_ms, 77u);
  revoke_all();
  ASSERT_TRUE(Raise(*store)) << "whatever finds out first";
  EXPECT_EQ(store->LoadHosts()->size(), 1u);
  EXPECT_EQ(store->Load()->jobs.at(0).job.world_size, 2);
}

TEST(etcd_store, store_that_was_wiped_is_filled_again) {
  EtcdServer server;
  const auto store = Open(server.NewStore());
  ASSERT_TRUE(store->SaveHost(Host("w1", 1)));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Raise(*store));
  const auto seen = store->Load();
  server.Signal(SIGKILL);
  ASSERT_TRUE(WaitUntil([&] { return !store->Outage().empty(); }));
  server.WipeData();
  server.Start();
  ASSERT_TRUE(WaitUntil([&] { return store->Changed(*seen).value_or(false); }));
  EXPECT_TRUE(store->Load()->jobs.empty());
  ASSERT_TRUE(store->Beat("w1", 5));
  EXPECT_EQ(store->LoadHosts()->at(0).heartbeat_ms, 5u);
}

TEST(etcd_store, history_is_dropped) {
  EtcdServer server;
  auto config = server.NewStore();
  config.compact_s = 1;
  const auto store = Open(config);
  EXPECT_TRUE(WaitUntil([&] {
    EXPECT_TRUE(Raise(*store));
    return server.Post("kv/range", {{"key", etcd::ToBase64("x")}, {"revision", "2"}}).dump().find("compacted") != std::string::npos;
  }));
  const auto seen = store->Load();
  EXPECT_TRUE(Raise(*Open(config)));
  EXPECT_TRUE(WaitUntil([&] { return *store->Changed(*seen); }));
}

TEST(etcd_store, more_jobs_than_one_transaction_can_name) {
  const auto store = Open(test::SharedEtcd().NewStore());
  std::set<std::string> names;
  for (int i = 0; i < 130; ++i) names.insert("job" + std::to_string(i));
  for (const std::string name : {"job3", "other"}) {
    ASSERT_TRUE(store->UpdateJob(name, [&](std::optional<JobView>& view) -> Result<void> {
      view.emplace();
      view->job.name = name;
      view->job.state = control::kClosed;
      return {};
    }));
  }
  const auto open = store->LoadOpen(names);
  ASSERT_TRUE(open);
  ASSERT_EQ(open->jobs.size(), 1u);
  EXPECT_EQ(open->jobs[0].job.name, "job3");
  std::vector<Store::Counters> counters;
  for (int i = 0; i < 230; ++i) counters.push_back({"rank " + std::to_string(i), {{"x", i}}});
  ASSERT_TRUE(Raise(*store));
  ASSERT_TRUE(store->SaveCounters("demo", 7, counters));
  std::vector<Store::Life> lives(130, {"none", 1});
  lives.back() = {"demo", 7};
  const auto loaded = store->LoadCounters(lives);
  ASSERT_TRUE(loaded);
  ASSERT_EQ(loaded->size(), 130u);
  EXPECT_EQ(loaded->front().size(), 0u);
  EXPECT_EQ(loaded->back().size(), 230u);
}

TEST(etcd_store, store_of_a_later_version_is_refused) {
  const auto config = test::SharedEtcd().NewStore();
  test::SharedEtcd().Put(config.prefix + "/schema", "2");
  const auto refused = EtcdStore::Open(config);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
}

TEST(etcd_store, start_waits_for_etcd_and_says_so_when_it_gives_up) {
  EtcdServer server;
  const auto config = server.NewStore();
  server.Signal(SIGKILL);
  const auto gave_up = EtcdStore::Open(config, {}, milliseconds{300});
  ASSERT_FALSE(gave_up);
  EXPECT_TRUE(IsNoAnswer(gave_up.error())) << gave_up.error().ToString();
  std::thread daemon([&] {
    const auto opened = EtcdStore::Open(config, {}, std::chrono::seconds(20));
    EXPECT_TRUE(opened) << opened.error().ToString();
  });
  server.Start();  // on this thread: etcd ends with the one that started it
  daemon.join();
}

TEST(etcd_store, user_and_password_are_asked_for_and_the_token_renewed) {
  EtcdServer server;
  const test::TempFolder folder;
  for (const char* user : {"root", "mlnet"}) server.Post("auth/user/add", {{"name", user}, {"password", "secret"}});
  for (const char* role : {"root", "jobs"}) server.Post("auth/role/add", {{"name", role}});
  auto config = server.NewStore();
  server.Post("auth/role/grant", {{"name", "jobs"}, {"perm", {{"permType", "READWRITE"}, {"key", etcd::ToBase64(config.prefix + "/")},
                                                              {"range_end", etcd::ToBase64(etcd::EndOf(config.prefix + "/"))}}}});
  server.Post("auth/user/grant", {{"user", "root"}, {"role", "root"}});
  server.Post("auth/user/grant", {{"user", "mlnet"}, {"role", "jobs"}});
  server.Post("auth/enable", control::Json::object());
  const auto refused = EtcdStore::Open(config);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPermission) << refused.error().ToString();
  config.user = "mlnet";
  config.password_file = folder / "password";
  std::ofstream(config.password_file) << "wrong\n";
  EXPECT_EQ(EtcdStore::Open(config).error().code, ErrorCode::kPermission);
  std::ofstream(config.password_file) << "secret\n";
  const auto store = Open(config);
  ASSERT_TRUE(Raise(*store));
  server.Signal(SIGKILL);  // takes its tokens along
  server.Start();
  ASSERT_TRUE(WaitUntil([&] { return Raise(*store).has_value(); }));
  const auto seen = store->Load();
  ASSERT_TRUE(Raise(*Open(config)));
  EXPECT_TRUE(WaitUntil([&] { return store->Changed(*seen).value_or(false); }));
  config.prefix = "others";
  EXPECT_EQ(EtcdStore::Open(config).error().code, ErrorCode::kPermission);
}

TEST(etcd_store, certificates_of_both_sides_are_checked) {
  const test::TempFolder folder;
  const std::string make =
      "cd " + (folder / ".") + " && exec >log 2>&1 && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem && "
      "openssl req -newkey rsa:2048 -nodes -subj /CN=mlnet -keyout key.pem -out csr.pem && "
      "printf 'subjectAltName=IP:127.0.0.1\\nextendedKeyUsage=serverAuth,clientAuth\\n' >ext && "
      "openssl x509 -req -in csr.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out cert.pem";
  ASSERT_EQ(::system(make.c_str()), 0);
  control::EtcdConfig client;
  client.ca = folder / "ca.pem";
  client.cert = folder / "cert.pem";
  client.key = folder / "key.pem";
  const EtcdServer server({"--cert-file=" + client.cert, "--key-file=" + client.key, "--client-cert-auth", "--trusted-ca-file=" + client.ca}, client);
  auto config = server.NewStore();
  ASSERT_TRUE(Raise(*Open(config)));
  auto bare = config;
  bare.cert.clear();
  bare.key.clear();
  EXPECT_FALSE(EtcdStore::Open(bare, {}, milliseconds{0}));
  auto trusting_others = config;
  trusting_others.ca.clear();
  const auto refused = EtcdStore::Open(trusting_others, {}, milliseconds{0});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("certificate"));
}

}  // namespace
}  // namespace mlnet::daemon
