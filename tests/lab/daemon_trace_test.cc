// SPDX-License-Identifier: Apache-2.0
// `mlnetctl trace` of a running job: real daemons and ranks, and the timeline of a worker's host laid over the aggregator's.
#include <atomic>
#include <fstream>
#include <thread>

#include "lab/daemon_fixture.h"
#include "mlnet/communicator.h"

namespace mlnet::test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kCount = 100'003;      // int32 elements of a call
constexpr uint64_t kPayload = 352;      // of them in a packet
constexpr uint64_t kPackets = (kCount + kPayload - 1) / kPayload;

class DaemonTrace : public ::testing::Test {
 protected:
  void SetUp() override {
    lab_.StartAll();
    for (int rank = 0; rank < 2; ++rank) {
      ranks_.emplace_back([this, rank] { lab_.In(rank == 0 ? "w1" : "w2", [&] { Rank(rank); }); });
    }
    ASSERT_TRUE(WaitUntil([&] { return num_calls_ > 4; }, std::chrono::seconds(30)));
  }
  void TearDown() override {
    is_over_ = true;
    for (std::thread& rank : ranks_) rank.join();
  }

  // One call after the other until the test is over, which both hear of by the same call: rank 0 says it with the data.
  void Rank(int rank) {
    JoinOptions options;
    options.job = "demo";
    options.rank = rank;
    options.world_size = 2;
    options.socket = lab_.Socket(rank == 0 ? "w1" : "w2");
    auto comm = Communicator::Join(options);
    ASSERT_TRUE(comm) << comm.error().ToString();
    std::vector<int32_t> data(kCount, 0), sum(kCount);
    for (bool is_last = false; !is_last; ++num_calls_) {
      data[0] = rank == 0 && is_over_ ? 1 : 0;
      const auto done = (*comm)->AllReduce(data.data(), sum.data(), kCount, DataType::kInt32)->Wait();
      ASSERT_TRUE(done) << done.error().ToString();
      is_last = sum[0] == 1;
    }
  }

  Ran Ctl(const std::string& host, const std::string& args) {
    return Shell("MLNET_SOCKET=" + lab_.Socket(host) + " " MLNETCTL_BINARY " " + args + " 2>&1");
  }
  Json File(const std::string& name) {
    std::ifstream in(lab_.Path(name));
    return Json::parse(in);
  }

  DaemonLab lab_{{"w1", "w2", "a1"}};
  std::atomic<bool> is_over_ = false;
  std::atomic<int> num_calls_ = 0;
  std::vector<std::thread> ranks_;
};

TEST_F(DaemonTrace, shows_each_call_from_the_rank_over_the_sum_to_the_result) {
  // The aggregator's kernel tells for longer: what the rank records lies within, also where mlnetctl takes seconds to begin.
  Json of_a1 = lab_.Call("a1", "trace.begin", {{"name", "demo"}, {"ms", 6'000}});
  EXPECT_EQ(lab_.CallError("a1", "trace.begin", {{"name", "demo"}}).code, ErrorCode::kConflict);
  const Ran of_rank = Ctl("w1", "-j trace demo --seconds 0.5 -o " + lab_.Path("w1.json"));
  ASSERT_EQ(of_rank.exit_code, 0) << of_rank.output;
  of_a1["rows"] = Json::array();
  ASSERT_TRUE(WaitUntil([&] {
    const Json some = lab_.Call("a1", "trace.take", {{"name", "demo"}});
    for (const Json& row : some["rows"]) of_a1["rows"].push_back(row);
    return some["is_over"] == true;
  }, std::chrono::seconds(30)));
  const Json of_w1 = Json::parse(of_rank.output)["hosts"][0];
  EXPECT_GT(of_w1["collectives"], 0);
  EXPECT_EQ(of_w1["sums"], 0) << "no sum is made on this host";
  std::ofstream(lab_.Path("a1.json")) << Json{{"traceEvents", Json::array()}, {"mlnet", Json::array({of_a1})}};

  const Ran both = Ctl("w1", "-j trace --add " + lab_.Path("w1.json") + " " + lab_.Path("a1.json") + " -o " + lab_.Path("both.json"));
  ASSERT_EQ(both.exit_code, 0) << both.output;
  size_t collectives = 0;
  const Json timeline = File("both.json");
  for (const Json& event : timeline["traceEvents"]) {
    if (event.value("cat", "") != "collective") continue;
    ++collectives;
    EXPECT_THAT(event["name"].get<std::string>(), HasSubstr("all_reduce"));
    EXPECT_EQ(event["args"]["packets"], kPackets);
    const double called = event["ts"], done = called + event["dur"].get<double>();
    // All hosts of this lab have one clock.
    ASSERT_TRUE(event["args"].contains("summed_from_us")) << event.dump();
    const double from = event["args"]["summed_from_us"], until = event["args"]["summed_until_us"];
    EXPECT_LT(called, from);
    EXPECT_LE(from, until);
    EXPECT_LT(until, done);
  }
  EXPECT_EQ(collectives, of_w1["collectives"]);
  // Nobody is told any more.
  EXPECT_THAT(lab_.CallError("a1", "trace.take", {{"name", "demo"}}).message, HasSubstr("is not being traced"));
}

TEST_F(DaemonTrace, says_what_cannot_be_traced) {
  EXPECT_THAT(Ctl("w1", "trace other").output, HasSubstr("there is no job 'other'"));
  EXPECT_THAT(Ctl("w1", "trace").output, HasSubstr("name a job"));
  EXPECT_THAT(Ctl("w1", "trace --add /nowhere").output, HasSubstr("read /nowhere: No such file"));
  EXPECT_THAT(Ctl("w1", "trace --add " + lab_.ConfigFile("w1")).output, HasSubstr("is not JSON"));
  EXPECT_EQ(lab_.CallError("w1", "trace.begin", {{"name", "demo"}, {"ms", 0}}).code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace mlnet::test
