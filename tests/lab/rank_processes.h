// SPDX-License-Identifier: Apache-2.0
// Ranks in processes of their own, which may be killed and stopped, and say by files how far they are: "done" the number of calls,
// "outcome" how it ended, and what else a kind of rank has to say.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "lab/daemon_fixture.h"

namespace mlnet::test {

class RankProcesses {
 public:
  explicit RankProcesses(DaemonLab& lab) : lab_(lab) {}
  virtual ~RankProcesses() { End(); }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// Calls that a rank has done.
  int Done(size_t rank) const;
  bool WaitDone(size_t rank, int calls) const;
  /// Waits for the end.
  std::string Outcome(size_t rank) const;
  std::string Read(size_t rank, const std::string& what) const;
  pid_t pid(size_t rank) const { return pids_[rank]; }
  void Kill(size_t rank);
  void End();

 protected:
  /// One for each of `hosts`, with Rank as its program. Files of before are gone: "done", "outcome" and `more`.
  void StartOn(const std::string& job, const std::vector<std::string>& hosts, std::initializer_list<const char*> more);
  void Write(int rank, const std::string& what, const std::string& text) const;
  size_t num_ranks() const { return pids_.size(); }

  DaemonLab& lab_;

 private:
  virtual void Rank(int rank) const = 0;
  std::string File(size_t rank, const std::string& what) const { return lab_.Path(name_ + "." + std::to_string(rank) + "." + what); }

  std::string name_;
  std::vector<pid_t> pids_;
};

}  // namespace mlnet::test
