// SPDX-License-Identifier: Apache-2.0
// Two NICs per host, each in a network of its own: real daemons, real ranks, and which NIC carried how many bytes.
#include <thread>

#include "lab/daemon_fixture.h"
#include "mlnet/communicator.h"

namespace mlnet::test {
namespace {

constexpr size_t kCount = 3'000'017;  // int32 elements of a call
constexpr int kCalls = 2;

class DaemonRails : public ::testing::Test {
 protected:
  void StartWithRates(const std::string& eth0, const std::string& eth1) {
    for (const std::string& host : kHosts) lab_.AddSecondNic(host);
    lab_.UseIface("name = \"eth0\"\nrate = \"" + eth0 + "\"");
    for (const std::string& host : kHosts) {
      ASSERT_NO_FATAL_FAILURE(lab_.Start(host, "[[iface]]\nname = \"eth1\"\nrate = \"" + eth1 + "\"\n"));
    }
  }

  // Both calls of one rank, each element checked. Runs in its host's namespace.
  void Rank(int rank, const std::string& job) {
    JoinOptions options;
    options.job = job;
    options.rank = rank;
    options.world_size = static_cast<int>(kHosts.size());
    options.socket = lab_.Socket(kHosts[static_cast<size_t>(rank)]);
    auto comm = Communicator::Join(options);
    ASSERT_TRUE(comm) << comm.error().ToString();
    std::vector<int32_t> data(kCount), sum(kCount);
    for (int call = 0; call < kCalls; ++call) {
      for (size_t i = 0; i < kCount; ++i) data[i] = static_cast<int32_t>(i % 1009) * (rank + 1) + call;
      const auto done = (*comm)->AllReduce(data.data(), sum.data(), kCount, DataType::kInt32)->Wait();
      ASSERT_TRUE(done) << done.error().ToString();
      size_t wrong = 0;
      for (size_t i = 0; i < kCount; ++i) wrong += sum[i] != static_cast<int32_t>(i % 1009) * 10 + 4 * call;
      EXPECT_EQ(wrong, 0u) << "rank " << rank << ", call " << call;
    }
  }

  void AllReduce(const std::string& job) {
    std::vector<std::thread> ranks;
    for (size_t r = 0; r < kHosts.size(); ++r) {
      ranks.emplace_back([this, r, job] { lab_.In(kHosts[r], [&] { Rank(static_cast<int>(r), job); }); });
    }
    for (std::thread& rank : ranks) rank.join();
  }

  void ExpectShares(double second_over_first) {
    for (const std::string& host : kHosts) {
      const auto first = static_cast<double>(lab_.BytesFrom(host, "eth0")), second = static_cast<double>(lab_.BytesFrom(host, "eth1"));
      // Three quarters of what a host contributes leave it, and the sums of its own quarter, once or once per host.
      EXPECT_GT(first + second, 4.0 * kCount * kCalls * 0.95) << host;
      EXPECT_NEAR(second / first, second_over_first, 0.1 * second_over_first) << host << ": " << first << ", " << second;
    }
  }

  const std::vector<std::string> kHosts = {"w1", "w2", "w3", "w4"};
  DaemonLab lab_{kHosts};
};

TEST_F(DaemonRails, both_carry_half_where_they_are_equal) {
  ASSERT_NO_FATAL_FAILURE(StartWithRates("10gbit", "10gbit"));
  ASSERT_NO_FATAL_FAILURE(AllReduce("demo"));
  ExpectShares(1.0);
}

TEST_F(DaemonRails, one_of_half_the_rate_carries_a_third) {
  ASSERT_NO_FATAL_FAILURE(StartWithRates("10gbit", "5gbit"));
  ASSERT_NO_FATAL_FAILURE(AllReduce("demo"));
  ExpectShares(0.5);
}

}  // namespace
}  // namespace mlnet::test
