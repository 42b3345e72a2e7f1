// SPDX-License-Identifier: Apache-2.0
// What can go wrong in a cluster goes wrong at random, one thing a round, in the middle of collectives that are all checked. Each
// round ends with right sums on all ranks, or with an error on all of them that names the cause, within its deadline.
//   lab_chaos                                  each kind once: what tools/check runs; with --full (MLNET_LONG=1) for 30 minutes
//   lab_chaos --seconds N [--seed S] [--only KIND]
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <random>

#include "base/clock.h"
#include "lab/chaos_rank.h"
#include "lab/daemon_fixture.h"

namespace mlnet::test {
namespace {

struct Options {
  double seconds = 0;  // 0: each kind once
  uint64_t seed = 20261129;
  std::string only;
};
Options g_options;

constexpr uint32_t kTimeoutMs = 15'000;    // of a collective
constexpr uint64_t kDeadlineMs = 20'000;   // until all ranks have heard of what happened
constexpr uint64_t kCallsAfter = 5;        // of each rank, where the job is to go on

/// Shared with the ranks' processes.
struct Shared {
  std::atomic<uint32_t> should_end;
  ChaosReport ranks[8];
};

/// One job, and what happens to it.
class Round {
 public:
  Round(DaemonLab& lab, ChaosJob job, std::mt19937_64& random) : lab_(lab), job_(std::move(job)), random_(random) {
    shared_ = static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (size_t rank = 0; rank < job_.hosts.size(); ++rank) StartRank(rank);
  }
  ~Round() {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    ::munmap(shared_, sizeof(Shared));
  }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  DaemonLab& lab() { return lab_; }
  pid_t pid(size_t rank) const { return pids_[rank]; }
  const std::string& host(size_t rank) const { return job_.hosts[rank]; }
  const ChaosReport& report(size_t rank) const { return shared_->ranks[rank]; }
  size_t victim() const { return victim_; }
  uint64_t Random() { return random_(); }
  /// One rank or host of ranks is hit, now: this rank, or this rank's host.
  void ChooseVictim() {
    victim_ = random_() % pids_.size();
    hit_ns_ = MonotonicClock().NowNs();
  }
  uint64_t hit_ns() const { return hit_ns_; }
  /// Does not count any more: it was killed or stopped.
  void GiveUp(size_t rank) { given_up_.push_back(rank); }
  bool Counts(size_t rank) const { return std::find(given_up_.begin(), given_up_.end(), rank) == given_up_.end(); }
  bool ForAll(const std::function<bool(const ChaosReport&)>& condition) const {
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      if (Counts(rank) && !condition(report(rank))) return false;
    }
    return true;
  }

  /// Somewhere in the middle: each rank has done so many calls at random.
  bool Begin() {
    const uint64_t calls = 2 + random_() % 30;
    return WaitUntil([&] { return ForAll([&](const ChaosReport& r) { return r.calls >= calls || r.is_over != 0; }); }, std::chrono::seconds(60));
  }
  bool GoesOn() {
    std::vector<uint64_t> before;
    for (size_t rank = 0; rank < pids_.size(); ++rank) before.push_back(report(rank).calls);
    return WaitUntil([&] {
      for (size_t rank = 0; rank < pids_.size(); ++rank) {
        if (report(rank).calls < before[rank] + kCallsAfter && report(rank).is_over == 0) return false;
      }
      return true;
    }, std::chrono::milliseconds(kDeadlineMs));
  }
  bool End() {
    shared_->should_end = 1;
    return AllOver();
  }
  bool AllOver() {
    return WaitUntil([&] { return ForAll([](const ChaosReport& r) { return r.is_over != 0; }); }, std::chrono::milliseconds(kDeadlineMs));
  }
  std::string Says() const {
    std::string text = "job " + job_.name + ", seed " + std::to_string(job_.seed) + "\n";
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      text += "rank " + std::to_string(rank) + " on " + host(rank) + (Counts(rank) ? "" : " (hit)") + ", " + std::to_string(report(rank).calls) +
              " calls: " + report(rank).error + "\n";
    }
    return text;
  }

 private:
  void StartRank(size_t rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      lab_.In(host(rank), [&] { RunChaosRank(job_, static_cast<int>(rank), lab_.Socket(host(rank)), shared_->should_end, shared_->ranks[rank]); });
    }
    pids_.push_back(pid);
  }

  DaemonLab& lab_;
  ChaosJob job_;
  std::mt19937_64& random_;
  Shared* shared_;
  std::vector<pid_t> pids_;
  std::vector<size_t> given_up_;
  size_t victim_ = 0;
  uint64_t hit_ns_ = 0;
};

void SetLink(Round& round, const std::string& host, const char* state) {
  Shell("ip -n " + round.lab().Netns("sw") + " link set p-" + host + " " + state);
}
// As behind another switch: the host's own NIC sees nothing of it. (One that loses its carrier forgets its neighbours, and asks for
// them once a second: longer than lost_ms.)
void SetPort(Round& round, const std::string& host, const char* state) {
  // Not by `ip netns exec`, which makes mounts, and so takes the longer the busier the machine is: the cut is to be shorter than lost_ms.
  Shell("nsenter --net=/run/netns/" + round.lab().Netns("sw") + " bridge link set dev p-" + host + " state " + state);
}
void HitRank(Round& round, int signal) {
  round.ChooseVictim();
  ::kill(round.pid(round.victim()), signal);
  round.GiveUp(round.victim());
}
void RestartDaemon(Round& round, const std::string& host) {
  round.lab().Signal(host, round.Random() % 2 == 0 ? SIGKILL : SIGTERM);
  round.lab().Start(host);
}
// Its clients and the store hear nothing of it for a moment; what the kernel does goes on. Longer than lost_ms, far shorter than a host's
// heartbeat may be late.
void StopDaemonForAMoment(Round& round, const std::string& host) {
  ASSERT_EQ(::kill(round.lab().Pid(host), SIGSTOP), 0);
  ::poll(nullptr, 0, 1500);  // not a wait for something, but the fault
  EXPECT_EQ(::kill(round.lab().Pid(host), SIGCONT), 0);
}
void HitRankInRing(Round& round, int signal) {
  SetLink(round, "a1", "down");
  EXPECT_TRUE(round.GoesOn() && round.ForAll([](const ChaosReport& r) { return r.is_over == 0; })) << round.Says();
  HitRank(round, signal);
}
std::string RankAndHost(const Round& round) { return "rank " + std::to_string(round.victim()) + "|host " + round.host(round.victim()); }

/// What goes wrong, what is done to end it, and what the others must say: any of the names, split by |; empty: the job goes on.
struct Kind {
  const char* name;
  std::function<void(Round&)> hit;
  std::function<void(Round&)> heal;
  std::function<std::string(const Round&)> names;
};

void Nothing(Round&) {}
std::string GoesOn(const Round&) { return ""; }

std::vector<Kind> Kinds() {
  const auto cut_for_a_moment = [](Round& round, const std::string& host) {
    SetPort(round, host, "0");
    ::poll(nullptr, 0, 250);  // not a wait for something, but the fault: shorter than lost_ms
    SetPort(round, host, "3");
  };
  return {
      {"nothing", Nothing, Nothing, GoesOn},
      {"rank killed", [](Round& r) { HitRank(r, SIGKILL); }, Nothing, [](const Round& r) { return "rank " + std::to_string(r.victim()); }},
      {"rank stopped", [](Round& r) { HitRank(r, SIGSTOP); }, Nothing, [](const Round& r) { return "rank " + std::to_string(r.victim()); }},
      {"rank killed in a ring", [](Round& r) { HitRankInRing(r, SIGKILL); }, [](Round& r) { SetLink(r, "a1", "up"); },
       [](const Round& r) { return "rank " + std::to_string(r.victim()); }},
      {"rank stopped in a ring", [](Round& r) { HitRankInRing(r, SIGSTOP); }, [](Round& r) { SetLink(r, "a1", "up"); },
       [](const Round& r) { return "rank " + std::to_string(r.victim()); }},
      {"worker cut off", [](Round& r) { r.ChooseVictim(); SetLink(r, r.host(r.victim()), "down"); },
       [](Round& r) { SetLink(r, r.host(r.victim()), "up"); }, RankAndHost},
      {"worker cut for 250 ms", [=](Round& r) { r.ChooseVictim(); cut_for_a_moment(r, r.host(r.victim())); }, Nothing, GoesOn},
      {"aggregator cut off", [](Round& r) { SetLink(r, "a1", "down"); }, [](Round& r) { SetLink(r, "a1", "up"); }, GoesOn},
      {"worker's mlnetd restarted", [](Round& r) { RestartDaemon(r, "w1"); }, Nothing, GoesOn},
      {"aggregator's mlnetd restarted", [](Round& r) { RestartDaemon(r, "a1"); }, Nothing, GoesOn},
      {"worker's mlnetd stopped", [](Round& r) { StopDaemonForAMoment(r, "w2"); }, Nothing, GoesOn},
      {"aggregator's mlnetd stopped", [](Round& r) { StopDaemonForAMoment(r, "a1"); }, Nothing, GoesOn},
      {"aggregator cut for 250 ms", [=](Round& r) { cut_for_a_moment(r, "a1"); }, Nothing, GoesOn},
  };
}

struct Row {
  int rounds = 0;
  uint64_t calls = 0, elements = 0;
  int went_on = 0, ended_by_name = 0;
  uint64_t longest_ms = 0;  // from the event to the last rank's error
};

class ChaosLab : public ::testing::Test {
 protected:
  ChaosJob NextJob() {
    static int number = 0;
    ChaosJob job{"chaos" + std::to_string(++number), random_(), {"w1", "w2", "w3"}, kTimeoutMs};
    for (int more = static_cast<int>(random_() % 3); more > 0; --more) job.hosts.push_back("w" + std::to_string(1 + random_() % 3));
    std::shuffle(job.hosts.begin(), job.hosts.end(), random_);
    return job;
  }

  void ExpectNamed(const Round& round, const std::string& names) {
    for (size_t rank = 0; rank < round_size_; ++rank) {
      if (!round.Counts(rank)) continue;
      const std::string error = round.report(rank).error;
      bool is_named = false;
      for (size_t at = 0; at <= names.size();) {
        const size_t end = std::min(names.find('|', at), names.size());
        is_named = is_named || error.find(names.substr(at, end - at)) != std::string::npos;
        at = end + 1;
      }
      EXPECT_TRUE(is_named) << "rank " << rank << " does not name " << names << "\n" << round.Says();
    }
  }

  void Play(const Kind& kind, Row& row) {
    const ChaosJob job = NextJob();
    SCOPED_TRACE(testing::Message() << kind.name << ", " << job.name << ", seed " << job.seed);
    round_size_ = job.hosts.size();
    Round round(lab_, job, random_);
    ASSERT_TRUE(round.Begin()) << round.Says();
    kind.hit(round);
    const std::string names = kind.names(round);
    if (names.empty()) {
      EXPECT_TRUE(round.GoesOn()) << round.Says();
      EXPECT_TRUE(round.End()) << round.Says();
      EXPECT_TRUE(round.ForAll([](const ChaosReport& r) { return r.error[0] == '\0'; })) << round.Says();
      ++row.went_on;
    } else {
      EXPECT_TRUE(round.AllOver()) << "some hang\n" << round.Says();
      ExpectNamed(round, names);
      ++row.ended_by_name;
    }
    for (size_t rank = 0; rank < round_size_; ++rank) {
      EXPECT_FALSE(round.report(rank).is_wrong) << round.Says();
      row.calls += round.report(rank).calls;
      row.elements += round.report(rank).elements;
      if (!names.empty() && round.Counts(rank)) row.longest_ms = std::max(row.longest_ms, (round.report(rank).over_ns - round.hit_ns()) / 1'000'000);
    }
    kind.heal(round);
    ++row.rounds;
  }

  std::mt19937_64 random_{g_options.seed};
  size_t round_size_ = 0;
  DaemonLab lab_{{"w1", "w2", "w3", "a1"}};
};

void Print(const std::vector<Kind>& kinds, const std::vector<Row>& rows) {
  std::printf("%-30s%8s%12s%14s%10s%16s%22s\n", "event", "rounds", "calls", "elements", "went on", "ended by name", "longest until known");
  for (size_t i = 0; i < kinds.size(); ++i) {
    const Row& row = rows[i];
    if (row.rounds == 0) continue;
    const std::string longest = row.ended_by_name == 0 ? "-" : std::to_string(row.longest_ms) + " ms";
    std::printf("%-30s%8d%12llu%14llu%10d%16d%22s\n", kinds[i].name, row.rounds, static_cast<unsigned long long>(row.calls),
                static_cast<unsigned long long>(row.elements), row.went_on, row.ended_by_name, longest.c_str());
  }
  std::fflush(stdout);
}

TEST_F(ChaosLab, every_round_ends_with_right_sums_or_with_an_error_that_names_the_cause) {
  std::printf("chaos: seed %llu\n", static_cast<unsigned long long>(g_options.seed));
  ASSERT_NO_FATAL_FAILURE(lab_.StartAll());
  const std::vector<Kind> kinds = Kinds();
  const bool is_known = std::any_of(kinds.begin(), kinds.end(), [](const Kind& k) { return g_options.only == k.name; });
  ASSERT_TRUE(g_options.only.empty() || is_known) << "--only " << g_options.only << ": no such kind";
  std::vector<Row> rows(kinds.size());
  const uint64_t end_ns = MonotonicClock().NowNs() + static_cast<uint64_t>(g_options.seconds * 1e9);
  do {
    for (size_t i = 0; i < kinds.size() && !HasFailure(); ++i) {
      const size_t at = g_options.seconds == 0 ? i : random_() % kinds.size();
      if (!g_options.only.empty() && g_options.only != kinds[at].name) continue;
      Play(kinds[at], rows[at]);
    }
  } while (MonotonicClock().NowNs() < end_ns && !HasFailure());
  Print(kinds, rows);
}

}  // namespace
}  // namespace mlnet::test

int main(int argc, char** argv) {
  using mlnet::test::g_options;
  testing::InitGoogleTest(&argc, argv);
  const char* is_long = std::getenv("MLNET_LONG");
  if (is_long != nullptr && is_long[0] == '1') g_options.seconds = 1800;
  CLI::App app("what can go wrong, at random");
  app.add_option("--seconds", g_options.seconds, "so long, at random; 0: each kind once");
  app.add_option("--seed", g_options.seed, "of everything that is random");
  app.add_option("--only", g_options.only, "one kind, as the table names it");
  CLI11_PARSE(app, argc, argv);
  return RUN_ALL_TESTS();
}
