// SPDX-License-Identifier: Apache-2.0
// A parameter server with real daemons: ranks push gradients, the server steps, ranks pull the parameters.
#include <cstdlib>
#include <vector>

#include "lab/lab_fixture.h"
#include "mlnet/server.h"

namespace mlnet::lab_test {
namespace {

constexpr int kRanks = 4;
constexpr int kSteps = 5;
constexpr size_t kElements = 20'000;
constexpr size_t kDataPackets = (kElements + 351) / 352;
constexpr size_t kProbes = 1;

using Floats = std::vector<float>;

// Whole numbers, so that the sums and steps below are exact in every order.
float GradientOf(int rank, int step, size_t i) {
  return static_cast<float>((rank + 1) * (static_cast<int>(i % 7) - 3) + step);
}

Floats ParametersAfter(int steps) {
  Floats parameters(kElements);
  for (size_t i = 0; i < kElements; ++i) {
    double sum = 0;
    for (int step = 0; step < steps; ++step) {
      for (int rank = 0; rank < kRanks; ++rank) sum += static_cast<double>(GradientOf(rank, step, i));
    }
    parameters[i] = static_cast<float>(static_cast<double>(i) - 0.5 * sum);
  }
  return parameters;
}

std::string SocketOf(const Lab& lab, const std::string& host) {
  return lab.Exec(host, {"sh", "-c", "printf %s \"$MLNET_SOCKET\""}).out;
}

Output Control(const Lab& lab, const std::string& host, std::vector<std::string> args) {
  args.insert(args.begin(), (LabProgram().parent_path() / "mlnetctl").string());
  return lab.Exec(host, args);
}

void ExpectOk(const std::shared_ptr<Work>& work) {
  const auto outcome = work->Wait();
  EXPECT_TRUE(outcome.has_value()) << outcome.error().ToString();
}

void RunServer(const JoinOptions& options, CommStats& stats) {
  auto server = Server::Join(options);
  ASSERT_TRUE(server.has_value()) << server.error().ToString();
  Floats parameters = ParametersAfter(0), sum(kElements);
  for (int step = 0; step < kSteps; ++step) {
    ExpectOk((*server)->TakePush(sum.data(), sum.size(), DataType::kFloat32));
    for (size_t i = 0; i < kElements; ++i) parameters[i] -= 0.5F * sum[i];
    ExpectOk((*server)->GivePull(parameters.data(), parameters.size() * sizeof(float)));
  }
  stats = (*server)->Stats();
}

void RunRank(const JoinOptions& options) {
  auto comm = Communicator::Join(options);
  ASSERT_TRUE(comm.has_value()) << comm.error().ToString();
  Floats gradient(kElements), parameters(kElements);
  for (int step = 0; step < kSteps; ++step) {
    for (size_t i = 0; i < kElements; ++i) gradient[i] = GradientOf(options.rank, step, i);
    ExpectOk((*comm)->Push(gradient.data(), gradient.size(), DataType::kFloat32));
    ExpectOk((*comm)->Pull(parameters.data(), parameters.size() * sizeof(float)));
    EXPECT_EQ(parameters, ParametersAfter(step + 1)) << "rank " << options.rank << ", step " << step;
  }
  ExpectOk((*comm)->Barrier({.traffic_class = 1}));  // the same tree reflects, too
}

/// Ranks 0 and 1 on w1, 2 and 3 on w2, which combine them.
void Train(const Lab& lab, const std::string& server_host, CommStats& stats) {
  const Output created = Control(lab, server_host, {"job", "create", "ps", "-n", std::to_string(kRanks), "--root", "server"});
  ASSERT_EQ(created.exit_code, 0) << created.err;
  std::vector<std::thread> threads;
  threads.push_back(ThreadIn(lab.Netns(server_host), [&] {
    RunServer({.job = "ps", .world_size = kRanks, .socket = SocketOf(lab, server_host)}, stats);
  }));
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string host = rank < 2 ? "w1" : "w2";
    threads.push_back(ThreadIn(lab.Netns(host), [&lab, rank, host] {
      RunRank({.job = "ps", .rank = rank, .world_size = kRanks, .socket = SocketOf(lab, host)});
    }));
  }
  for (std::thread& thread : threads) thread.join();
}

Json StatsOf(const Lab& lab, const std::string& host) {
  const Json json = Json::parse(Control(lab, host, {"-j", "stats"}).out, nullptr, false);
  EXPECT_TRUE(json.is_object());
  return json;
}

uint64_t CountOf(const Json& stats, const std::string& verdict) { return stats["verdicts"][verdict]["count"]; }

TEST(ParameterServer, ranks_push_the_server_steps_and_ranks_pull) {
  for (const std::string loss : {"0", "1"}) {
    const Lab lab({"--workers", "2", "--aggregators", "1", "--loss", loss});
    CommStats server;
    Train(lab, "a1", server);
    const uint64_t numbers = kSteps * (kProbes + kDataPackets + kDataPackets);  // packets of a push and of a pull
    EXPECT_EQ(server.results, numbers) << "each sum and each pull once, whatever the number of ranks";
    const Json stats = StatsOf(lab, "a1");
    EXPECT_EQ(CountOf(stats, "SUM_TO_SERVER") + CountOf(stats, "SUM_TO_SERVER_LATE"), numbers);
    EXPECT_EQ(CountOf(stats, "ANSWER_SENT"), numbers);
    EXPECT_EQ(stats["contributions"], 2 * numbers + 2) << "one of each host, and of the barrier";
  }
}

TEST(ParameterServer, it_may_run_on_a_host_of_ranks) {
  const Lab lab({"--workers", "2", "--aggregators", "0", "--loss", "1"});
  CommStats server;
  Train(lab, "w1", server);
  EXPECT_EQ(server.results, kSteps * (kProbes + 2 * kDataPackets));
}

TEST(ParameterServer, with_ipv6_alone) {
  const Lab lab({"--workers", "2", "--aggregators", "1", "--loss", "1", "--ipv6"});
  CommStats server;
  Train(lab, "a1", server);
  EXPECT_GT(server.results, kSteps * kProbes) << "10 blocks a packet instead of 11, so more of them";
  EXPECT_EQ(CountOf(StatsOf(lab, "a1"), "ANSWER_SENT"), server.results);
}

TEST(ParameterServer, only_a_job_that_was_created_so_has_a_place_for_it) {
  const Lab lab({"--workers", "1", "--aggregators", "1"});
  RunIn(lab.Netns("a1"), [&] {
    const auto server = Server::Join({.job = "plain", .world_size = 1, .socket = SocketOf(lab, "a1")});
    ASSERT_FALSE(server.has_value());
    EXPECT_EQ(server.error().code, ErrorCode::kInvalidArgument) << server.error().ToString();
    EXPECT_THAT(server.error().ToString(), testing::HasSubstr("--root server"));
  });
  const Output refused = Control(lab, "a1", {"job", "create", "ps", "-n", "2", "--root", "server", "--shape", "shards"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, testing::HasSubstr("a server has one tree"));
}

}  // namespace
}  // namespace mlnet::lab_test
