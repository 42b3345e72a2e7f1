// SPDX-License-Identifier: Apache-2.0
#include "sim/soak_processes.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/fd.h"

namespace mlnet::sim {
namespace {

struct Process {
  pid_t pid = -1;
  Fd seeds;  // seeds go down, figures come up; closed: it ends
  uint64_t seed = 0;
};

// One of those that the parent may use.
void StayOnCpu(int index) {
  cpu_set_t allowed, own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int left = index % CPU_COUNT(&allowed);
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || left-- > 0) continue;
    CPU_SET(cpu, &own);
    break;
  }
  sched_setaffinity(0, sizeof(own), &own);
}

[[noreturn]] void RunChild(int index, const Fd& seeds) {
  StayOnCpu(index);
  uint64_t seed = 0;
  while (recv(seeds.get(), &seed, sizeof(seed), 0) == sizeof(seed)) {
    const Figures figures = RunSeed(seed);
    std::fflush(stdout);
    if (send(seeds.get(), &figures, sizeof(figures), MSG_NOSIGNAL) != sizeof(figures)) break;
  }
  std::exit(testing::Test::HasFailure() ? 1 : 0);
}

void Give(Process& process, uint64_t seed) {
  process.seed = seed;
  EXPECT_EQ(send(process.seeds.get(), &seed, sizeof(seed), MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(seed)));
}

void Start(std::vector<Process>& processes, int count, uint64_t first) {
  std::fflush(stdout);  // or each child has what is in the buffer
  for (int k = 0; k < count; ++k) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    Fd parents(ends[0]), childs(ends[1]);
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      processes.clear();  // the sockets of those before it
      parents = {};
      RunChild(k, childs);
    }
    processes.push_back({pid, std::move(parents), 0});
    Give(processes.back(), first + static_cast<uint64_t>(k));
  }
}

}  // namespace

void RunInProcesses(int count, uint64_t first, const std::function<bool(uint64_t, const Figures&)>& on_done) {
  std::vector<Process> processes;
  Start(processes, count, first);
  std::vector<pollfd> polled;
  for (const Process& process : processes) polled.push_back({process.seeds.get(), POLLIN, 0});
  bool goes_on = !testing::Test::HasFatalFailure();
  for (size_t running = processes.size(); running > 0;) {
    ASSERT_GT(poll(polled.data(), polled.size(), -1), 0);
    for (size_t k = 0; k < processes.size(); ++k) {
      if (polled[k].fd < 0 || polled[k].revents == 0) continue;
      Process& process = processes[k];
      Figures figures;
      const bool is_alive = recv(process.seeds.get(), &figures, sizeof(figures), 0) == sizeof(figures);
      EXPECT_TRUE(is_alive) << "the process died that ran seed " << process.seed;
      goes_on = is_alive && on_done(process.seed, figures) && goes_on;
      if (goes_on) {
        Give(process, process.seed + processes.size());
        continue;
      }
      process.seeds = {};
      polled[k].fd = -1;
      --running;
    }
  }
  for (const Process& process : processes) {
    int status = -1;
    EXPECT_EQ(waitpid(process.pid, &status, 0), process.pid);
    EXPECT_EQ(status, 0) << "see above which seed failed";
  }
}

}  // namespace mlnet::sim
