// SPDX-License-Identifier: Apache-2.0
#include "lab/rank_processes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace mlnet::test {

void RankProcesses::StartOn(const std::string& job, const std::vector<std::string>& hosts, std::initializer_list<const char*> more) {
  End();
  name_ = job;
  std::vector<const char*> files(more);
  files.insert(files.end(), {"done", "outcome"});
  for (size_t r = 0; r < hosts.size(); ++r) {
    for (const char* what : files) std::filesystem::remove(File(r, what));
  }
  for (size_t r = 0; r < hosts.size(); ++r) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      lab_.In(hosts[r], [&] { Rank(static_cast<int>(r)); });
      ::_exit(0);
    }
    pids_.push_back(pid);
  }
}

void RankProcesses::Write(int rank, const std::string& what, const std::string& text) const {
  const std::string file = File(static_cast<size_t>(rank), what);
  std::ofstream(file + ".tmp") << text;
  ::rename((file + ".tmp").c_str(), file.c_str());
}

std::string RankProcesses::Read(size_t rank, const std::string& what) const {
  std::ifstream in(File(rank, what));
  return {std::istreambuf_iterator<char>(in), {}};
}

int RankProcesses::Done(size_t rank) const {
  const std::string text = Read(rank, "done");
  return text.empty() ? 0 : std::stoi(text);
}

bool RankProcesses::WaitDone(size_t rank, int calls) const {
  return WaitUntil([&] { return Done(rank) >= calls || !Read(rank, "outcome").empty(); }, std::chrono::seconds(30)) && Done(rank) >= calls;
}

std::string RankProcesses::Outcome(size_t rank) const {
  EXPECT_TRUE(WaitUntil([&] { return !Read(rank, "outcome").empty(); }, std::chrono::seconds(60))) << "rank " << rank;
  return Read(rank, "outcome");
}

void RankProcesses::Kill(size_t rank) { ::kill(pids_[rank], SIGKILL); }

void RankProcesses::End() {
  for (const pid_t pid : pids_) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  pids_.clear();
}

}  // namespace mlnet::test
