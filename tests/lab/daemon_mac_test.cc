// SPDX-License-Identifier: Apache-2.0
// Jobs whose packets carry a tag, with real daemons: ranks sum, nobody is shown the key, and a host of the data network
// that is no member gets nothing in, whatever it sends from whatever address.
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdio>
#include <random>
#include <thread>

#include "harness/frame.h"
#include "harness/reference_mac.h"
#include "lab/daemon_fixture.h"
#include "mlnet/communicator.h"
#include "wire/packet.h"
#include "wire/verdicts.h"

namespace mlnet::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kSlots = 4;
constexpr size_t kBurst = 100;  // fits the ring of a veth, so that none is lost before the program

uint64_t NumForged() {
  const char* is_long = std::getenv("MLNET_LONG");
  return is_long != nullptr && std::string(is_long) == "1" ? 1'000'000 : 2'000;
}

Address MappedOf(const std::string& text) {
  Address address;
  address.bytes[10] = address.bytes[11] = 0xff;
  inet_pton(AF_INET, text.c_str(), &address.bytes[12]);
  return address;
}

// An IPv4 frame without its last bytes, and with lengths that say so: others do not get through a switch.
Bytes Shorter(Bytes frame, size_t bytes) {
  constexpr size_t kIp = 14, kUdp = 34;
  frame.resize(frame.size() - bytes);
  const auto put = [&](size_t at, size_t value) {
    frame[at] = static_cast<uint8_t>(value >> 8);
    frame[at + 1] = static_cast<uint8_t>(value);
  };
  put(kIp + 2, frame.size() - kIp);
  put(kUdp + 4, frame.size() - kUdp);
  put(kIp + 10, 0);
  uint32_t sum = 0;
  for (size_t at = kIp; at < kUdp; at += 2) sum += static_cast<uint32_t>(frame[at] << 8 | frame[at + 1]);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  put(kIp + 10, ~sum & 0xffff);
  return frame;
}

class DaemonMac : public ::testing::Test {
 protected:
  void Open(const Json& more = Json::object()) {
    lab_.StartAll();
    Json params = {{"name", "j"}, {"world_size", 2}, {"slots", kSlots}, {"classes", 1}, {"mac", true}};
    params.update(more);
    lab_.Call("a1", "job.create", params);
  }
  void Join() {
    ranks_ = lab_.Join("j", {{"w1", 0}, {"w2", 1}});
    for (const Joined& rank : ranks_) ASSERT_TRUE(rank.ok) << rank.error.ToString();
    job_key_ = ranks_[0].reply.result.value("key", "");
  }
  Mac MacOf(const std::string& host) const {
    const Json link = Json::parse(Shell("ip -n " + lab_.Netns(host) + " -j link show eth0").output);
    Mac mac{};
    unsigned b[6] = {};
    std::sscanf(link.at(0).at("address").get<std::string>().c_str(), "%x:%x:%x:%x:%x:%x", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5]);
    for (size_t i = 0; i < 6; ++i) mac[i] = static_cast<uint8_t>(b[i]);
    return mac;
  }
  /// As rank 0 sends it, or as everybody can make it who does not know the key.
  Frame FromRank0(uint64_t seq, const mlnet_key* key) const {
    const Json& r = ranks_[0].reply.result;
    Frame f;
    f.src_mac = MacOf("w1");
    f.dst_mac = MacOf("a1");
    f.saddr = MappedOf(lab_.Address("w1"));
    f.daddr = MappedOf(lab_.Address("a1"));
    f.dst_port = r["port"];
    f.wire = MLNET_WIRE_INT64;
    f.job = r["job_id"];
    f.epoch = r["epoch"];
    f.child = r["trees"][0]["child"];
    f.fingerprint = 7;
    f.seq = seq;
    f.key = key;
    f.Words(std::vector<uint64_t>(MLNET_BLOCK_WORDS, 1000 + seq));
    return f;
  }
  Frame ResultToW2(uint64_t seq, const mlnet_key* key) const {
    Frame f = FromRank0(seq, key);
    f.type = MLNET_T_RESULT;
    f.child = MLNET_CHILD_ALL;
    f.saddr = MappedOf(lab_.Address("a1"));
    f.daddr = MappedOf(lab_.Address("w2"));
    f.src_mac = MacOf("x1");  // a1's would turn the switch's table against a1: nothing that a tag can help
    f.dst_mac = MacOf("w2");
    f.weight = 2;
    f.bitmap = 3;
    return f;
  }

  /// What a host's programs have counted, by verdict.
  std::map<std::string, uint64_t> Verdicts(const std::string& host) {
    std::map<std::string, uint64_t> counts;
    const Json stats = lab_.Call(host, "stats");
    for (const auto& [name, row] : stats["verdicts"].items()) counts[name] = row["count"];
    return counts;
  }
  /// Sends `count` frames from x1, each as `make` has it, and gives the verdicts that they ended in at `host`.
  std::map<std::string, uint64_t> Attack(const std::string& host, uint64_t count, const std::function<Bytes(uint64_t)>& make) {
    const auto before = Verdicts(host);
    std::map<std::string, uint64_t> landed;
    const auto look = [&] {
      uint64_t sum = 0;
      landed.clear();
      for (const auto& [name, now] : Verdicts(host)) {
        const bool is_ours = name != "PASS_NOT_OURS" && now > before.at(name);
        if (is_ours) sum += landed[name] = now - before.at(name);
      }
      return sum;
    };
    lab_.In("x1", [&] {
      const Fd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
      sockaddr_ll to{};
      to.sll_family = AF_PACKET;
      to.sll_ifindex = static_cast<int>(::if_nametoindex("eth0"));
      for (uint64_t sent = 0; sent < count;) {
        for (size_t i = 0; i < kBurst && sent < count; ++i, ++sent) {
          const Bytes frame = make(sent);
          ASSERT_EQ(::sendto(socket.get(), frame.data(), frame.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
                    static_cast<ssize_t>(frame.size()));
        }
        ASSERT_TRUE(WaitUntil([&] { return look() >= sent; })) << look() << " of " << sent;
      }
    });
    return landed;
  }
  static void Print(const char* what, const std::map<std::string, uint64_t>& landed) {
    for (const auto& [name, count] : landed) std::printf("  %-34s %-20s %llu\n", what, name.c_str(), static_cast<unsigned long long>(count));
  }

  DaemonLab lab_{{"a1", "w1", "w2", "x1"}};
  std::vector<Joined> ranks_;
  std::string job_key_;
};

TEST_F(DaemonMac, libmlnet_sums_over_tagged_packets) {
  Open();
  std::vector<std::thread> threads;
  std::vector<std::vector<int32_t>> sums(2, std::vector<int32_t>(50'000));
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      lab_.In(rank == 0 ? "w1" : "w2", [&] {
        JoinOptions options;
        options.job = "j";
        options.rank = rank;
        options.world_size = 2;
        options.socket = lab_.Socket(rank == 0 ? "w1" : "w2");
        auto comm = Communicator::Join(options);
        ASSERT_TRUE(comm) << comm.error().ToString();
        auto& sum = sums[static_cast<size_t>(rank)];
        const std::vector<int32_t> data(sum.size(), rank + 5);
        for (int call = 0; call < 5; ++call) {
          const auto done = (*comm)->AllReduce(data.data(), sum.data(), sum.size(), DataType::kInt32)->Wait();
          ASSERT_TRUE(done) << done.error().ToString();
        }
        EXPECT_EQ((*comm)->Stats().summed_in_user_space, 0u);
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& sum : sums) EXPECT_EQ(std::count(sum.begin(), sum.end(), 11), 50'000);
  for (const char* host : {"a1", "w1", "w2"}) EXPECT_EQ(Verdicts(host)["DROP_MAC"], 0u) << host;
}

TEST_F(DaemonMac, a_first_rank_may_ask_for_it_where_nobody_declared_the_job) {
  lab_.StartAll();
  auto client = rpc::Client::Connect(lab_.Socket("w1"));
  ASSERT_TRUE(client);
  const auto reply = client->CallWithFds("join", {{"job", "k"}, {"rank", 0}, {"world_size", 1}, {"pid", ::getpid()}, {"mac", true}},
                                         std::chrono::seconds(20));
  ASSERT_TRUE(reply) << reply.error().ToString();
  EXPECT_EQ(reply->result.value("key", "").size(), 32u);
  EXPECT_LT(reply->result["blocks"], MLNET_BLOCKS_MTU1500) << "the tag takes room in 1500 bytes";
  EXPECT_EQ(lab_.Call("w1", "job.show", {{"name", "k"}})["spec"]["mac"], true);
}

TEST_F(DaemonMac, a_rank_that_asks_for_it_does_not_go_without) {
  lab_.StartAll();
  lab_.Call("a1", "job.create", {{"name", "open"}, {"world_size", 2}});
  const auto join = [&](bool asks) {
    Result<std::unique_ptr<Communicator>> comm;
    lab_.In("w1", [&] {
      JoinOptions options;
      options.job = "open";
      options.world_size = 2;
      options.socket = lab_.Socket("w1");
      options.timeout = std::chrono::milliseconds(300);
      options.mac = asks;
      comm = Communicator::Join(options);
    });
    return comm;
  };
  const auto refused = join(true);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_THAT(refused.error().message, HasSubstr("packets of job 'open' carry no tags, and this rank asks for them"));
  EXPECT_EQ(join(false).error().code, ErrorCode::kTimeout) << "waits for the other";
  lab_.Call("a1", "job.set", {{"name", "open"}, {"mac", true}});
  EXPECT_EQ(join(true).error().code, ErrorCode::kTimeout);
  EXPECT_EQ(join(false).error().code, ErrorCode::kTimeout) << "and one that does not ask gets them too";
}

TEST_F(DaemonMac, the_key_is_new_each_time_and_shown_to_nobody_but_ranks) {
  Open();
  ASSERT_NO_FATAL_FAILURE(Join());
  ASSERT_EQ(job_key_.size(), 32u);
  EXPECT_EQ(ranks_[1].reply.result["key"], job_key_);
  for (const char* host : {"a1", "w1"}) {
    for (const char* method : {"status", "job.list", "stats", "top"}) EXPECT_THAT(lab_.Call(host, method).dump(), Not(HasSubstr(job_key_)));
    for (const char* method : {"job.show", "job.levels"}) {
      EXPECT_THAT(lab_.Call(host, method, {{"name", "j"}}).dump(), Not(HasSubstr(job_key_)));
    }
    EXPECT_THAT(lab_.Log(host), Not(HasSubstr(job_key_)));
    struct stat pin {};
    ASSERT_EQ(::stat((lab_.PinPath(host) + "/v" + std::to_string(MLNET_ABI_VERSION) + "/maps/ml_keys").c_str(), &pin), 0);
    EXPECT_EQ(pin.st_mode & 077, 0u);
  }
  struct stat store {};
  ASSERT_EQ(::stat(lab_.Path("store.db").c_str(), &store), 0);
  EXPECT_EQ(store.st_mode & 077, 0u);
  const std::string first = job_key_;
  lab_.Leave(ranks_);
  ASSERT_TRUE(WaitUntil([&] { return lab_.Call("a1", "job.show", {{"name", "j"}})["state"] == "closed"; }));
  ASSERT_NO_FATAL_FAILURE(Join());
  EXPECT_NE(job_key_, first);
}

TEST_F(DaemonMac, mac_of_a_running_job_cannot_change) {
  Open();
  ASSERT_NO_FATAL_FAILURE(Join());
  EXPECT_EQ(lab_.CallError("a1", "job.set", {{"name", "j"}, {"mac", false}}).code, ErrorCode::kConflict);
}

TEST_F(DaemonMac, a_host_that_is_no_member_changes_nothing) {
  Open();
  ASSERT_NO_FATAL_FAILURE(Join());
  const Json& join = ranks_[0].reply.result;
  const mlnet_key key = wire::DeriveKey(wire::KeyFromHex(job_key_).value(), join["job_id"], join["epoch"]);
  const mlnet_key guess = TestKey(3);
  for (uint64_t seq = 0; seq < 3; ++seq) lab_.ExpectSum(ranks_, seq);
  // Seq 0 gets older than anybody can need: its set serves 2P now.
  for (const uint64_t seq : {uint64_t{kSlots}, uint64_t{2 * kSlots}}) {
    lab_.Contribute("w1", ranks_[0], seq, 1);
    lab_.Contribute("w2", ranks_[1], seq, 2);
    ASSERT_TRUE(WaitUntil([&] {
      const mlnet_cell* cells = ranks_[1].MapInbox();
      const uint64_t published = cells[seq == kSlots ? 1 : 0].published;
      ::munmap(const_cast<mlnet_cell*>(cells), join["cells"].get<size_t>() * sizeof(mlnet_cell));
      return published == MLNET_STAMP(join["epoch"].get<uint64_t>(), seq);
    })) << seq;
  }
  const Json before = lab_.Call("a1", "job.show", {{"name", "j"}});
  const uint64_t n = NumForged();
  using Counts = std::map<std::string, uint64_t>;
  std::mt19937_64 random(9);
  std::printf("  %-34s %-20s %s\n", "sent by a host that is no member", "verdict", "packets");

  const auto attack = [&](const char* what, const std::string& host, const std::function<Bytes(uint64_t)>& make) {
    const Counts landed = Attack(host, n, make);
    Print(what, landed);
    return landed;
  };
  const Bytes forged = FromRank0(3, &guess).Build();
  EXPECT_EQ(attack("contribution, forged", "a1", [&](uint64_t) { return forged; }), (Counts{{"DROP_MAC", n}}));
  const Bytes untagged = FromRank0(3, nullptr).Build();
  EXPECT_EQ(attack("contribution, without a tag", "a1", [&](uint64_t) { return untagged; }), (Counts{{"DROP_MAC", n}}));
  const Bytes result = ResultToW2(3, &guess).Build();
  EXPECT_EQ(attack("result, forged", "w2", [&](uint64_t) { return result; }), (Counts{{"DROP_MAC", n}}));
  const Bytes stale = FromRank0(0, &key).Build();
  EXPECT_EQ(attack("replayed, older seq", "a1", [&](uint64_t) { return stale; }), (Counts{{"DROP_STALE", n}}));
  Frame earlier = FromRank0(3, &key);
  --earlier.epoch;
  const Bytes old = earlier.Build();
  EXPECT_EQ(attack("replayed, older epoch", "a1", [&](uint64_t) { return old; }), (Counts{{"DROP_EPOCH", n}}));
  const Bytes whole = FromRank0(3, &key).Build();
  const auto cut = [&](uint64_t i) { return Shorter(whole, 1 + i % 150); };
  uint64_t num_cut = 0;
  for (const auto& [verdict, count] : attack("truncated", "a1", cut)) {
    EXPECT_THAT(verdict, ::testing::AnyOf("DROP_MALFORMED", "DROP_MAC"));
    num_cut += count;
  }
  EXPECT_EQ(num_cut, n);
  uint64_t num_random = 0;
  const auto noise = [&](uint64_t) {
    Bytes bytes = whole;
    for (size_t at = HeaderAt(bytes); at < bytes.size(); ++at) bytes[at] = static_cast<uint8_t>(random());
    return bytes;
  };
  for (const auto& [verdict, count] : attack("random bytes", "a1", noise)) {
    EXPECT_THAT(verdict, ::testing::StartsWith("DROP_"));
    num_random += count;
  }
  EXPECT_EQ(num_random, n);

  const Json after = lab_.Call("a1", "job.show", {{"name", "j"}});
  for (const char* same : {"state", "epoch"}) EXPECT_EQ(after[same], before[same]);
  EXPECT_EQ(after["totals"]["contributions"], before["totals"]["contributions"]);
  EXPECT_EQ(after["totals"]["results"], before["totals"]["results"]);
  lab_.ExpectSum(ranks_, 3);  // as if nobody had tried
}

}  // namespace
}  // namespace mlnet::test
