// SPDX-License-Identifier: Apache-2.0
// The order of jobs on shared links, and what follows from it: a fluid simulation, written here, in which jobs
// are served as the shares say.
#include "plan/job_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace mlnet::plan {
namespace {

RunningJob Job(const std::string& name, Order order, std::optional<double> left = std::nullopt) {
  RunningJob job;
  job.name = name;
  job.order = order;
  job.left_bytes = left;
  job.links = {"w1/eth0", "w2/eth0"};
  return job;
}

TEST(JobOrder, a_job_alone_has_everything) {
  const auto shares = ShareLinks({Job("a", Order::kFair)}, 8);
  EXPECT_EQ(shares[0].share, 1.0);
  EXPECT_FALSE(shares[0].waits);
  EXPECT_EQ(shares[0].level, 0u);
}

TEST(JobOrder, fair_jobs_share_by_weight_on_their_busiest_link) {
  RunningJob a = Job("a", Order::kFair), b = Job("b", Order::kFair), c = Job("c", Order::kFair);
  b.weight = 3;
  c.links = {"w2/eth0", "w3/eth0"};
  const auto shares = ShareLinks({a, b, c}, 8);
  EXPECT_DOUBLE_EQ(shares[0].share, 1.0 / 5);  // on w2: 1 + 3 + 1
  EXPECT_DOUBLE_EQ(shares[1].share, 3.0 / 5);
  EXPECT_DOUBLE_EQ(shares[2].share, 1.0 / 5);
}

TEST(JobOrder, the_shortest_is_in_front_and_the_others_wait_in_their_order) {
  const auto shares = ShareLinks({Job("a", Order::kShortest, 300), Job("b", Order::kShortest, 100),
                                  Job("c", Order::kShortest, 200), Job("d", Order::kShortest, 400)}, 8);
  EXPECT_FALSE(shares[1].waits);
  EXPECT_EQ(shares[1].share, 1.0);
  for (const size_t i : {0, 2, 3}) EXPECT_TRUE(shares[i].waits) << i;
  EXPECT_EQ(shares[1].level, 0u);
  EXPECT_EQ(shares[2].level, 1u);
  EXPECT_EQ(shares[0].level, 2u);
  EXPECT_EQ(shares[3].level, 2u);
  EXPECT_EQ(shares[0].num_waiting, 3u);
}

TEST(JobOrder, equal_jobs_go_by_age_then_by_name) {
  RunningJob a = Job("a", Order::kShortest, 1), b = Job("b", Order::kShortest, 1), c = Job("c", Order::kShortest, 1);
  a.opened_ms = 20;
  b.opened_ms = c.opened_ms = 10;
  const auto shares = ShareLinks({a, c, b}, 8);
  EXPECT_FALSE(shares[2].waits);
  EXPECT_EQ(shares[1].level, 1u);
  EXPECT_EQ(shares[0].level, 2u);
}

TEST(JobOrder, what_was_done_stands_for_what_is_left_where_nobody_knows) {
  RunningJob a = Job("a", Order::kShortest), b = Job("b", Order::kShortest, 500);
  a.done_bytes = 400;
  EXPECT_FALSE(ShareLinks({a, b}, 8)[0].waits);
  a.done_bytes = 600;
  EXPECT_TRUE(ShareLinks({a, b}, 8)[0].waits);
}

TEST(JobOrder, jobs_without_a_common_link_do_not_wait_for_each_other) {
  RunningJob a = Job("a", Order::kShortest, 1), b = Job("b", Order::kShortest, 2), c = Job("c", Order::kShortest, 3);
  a.links = {"w1/eth0"};
  b.links = {"w1/eth0", "w2/eth0"};
  c.links = {"w2/eth0"};
  const auto shares = ShareLinks({a, b, c}, 8);
  EXPECT_FALSE(shares[0].waits);
  EXPECT_TRUE(shares[1].waits);
  EXPECT_FALSE(shares[2].waits);
}

TEST(JobOrder, a_fair_job_shares_with_the_one_in_front_only) {
  const auto shares =
      ShareLinks({Job("a", Order::kShortest, 1), Job("b", Order::kShortest, 2), Job("f", Order::kFair)}, 8);
  EXPECT_DOUBLE_EQ(shares[0].share, 0.5);
  EXPECT_TRUE(shares[1].waits);
  EXPECT_DOUBLE_EQ(shares[2].share, 0.5);
}

TEST(JobOrder, an_overdue_job_is_served_next_but_interrupts_nobody_whose_end_is_in_sight) {
  RunningJob front = Job("front", Order::kShortest, 10), shorter = Job("shorter", Order::kShortest, 1),
             old = Job("old", Order::kShortest, 1000);
  front.is_in_front = true;
  old.service_s = 10;
  old.waited_s = 79;
  auto shares = ShareLinks({front, shorter, old}, 8);
  EXPECT_FALSE(shares[1].waits);  // nobody is overdue: the shortest may interrupt
  old.waited_s = 81;
  shares = ShareLinks({front, shorter, old}, 8);
  EXPECT_TRUE(shares[2].is_overdue);
  EXPECT_FALSE(shares[0].waits);
  EXPECT_EQ(shares[2].level, 1u);
  shares = ShareLinks({shorter, old}, 8);
  EXPECT_FALSE(shares[1].waits);
  // Once it is in front it stays there until its waiting is paid for.
  old.is_in_front = old.is_overdue = true;
  old.waited_s = 1;
  EXPECT_FALSE(ShareLinks({shorter, old}, 8)[1].waits);
  old.waited_s = 0;
  EXPECT_TRUE(ShareLinks({shorter, old}, 8)[1].waits);
  front.left_bytes.reset();  // without an end it is not protected
  old = Job("old", Order::kShortest, 1000);
  old.waited_s = 81;
  EXPECT_TRUE(ShareLinks({front, old}, 8)[0].waits);
}

// One link of rate 1, decided anew every `step`; work in seconds of the link.
class Fluid {
 public:
  Fluid(Order order, double ageing, double step) : order_(order), ageing_(ageing), step_(step) {}

  void Add(const std::string& name, double work) {
    State state;
    state.work = work;
    state.arrived = now_;
    jobs_[name] = state;
  }
  void Step() {
    std::vector<RunningJob> running;
    for (auto& [name, s] : jobs_) {
      if (s.done >= s.work) continue;
      RunningJob job = Job(name, order_, s.work - s.done);
      job.done_bytes = s.done;
      job.service_s = s.work;
      job.waited_s = s.waited;
      job.is_in_front = s.is_in_front;
      job.is_overdue = s.is_overdue;
      job.opened_ms = static_cast<uint64_t>(s.arrived * 1000);
      running.push_back(job);
    }
    const auto shares = ShareLinks(running, ageing_);
    now_ += step_;
    for (size_t i = 0; i < running.size(); ++i) {
      State& s = jobs_.at(running[i].name);
      s.done += shares[i].share * step_;
      s.is_in_front = !shares[i].waits;
      s.is_overdue = shares[i].is_overdue;
      s.waited = shares[i].waits ? s.waited + step_ : std::max(0.0, s.waited - ageing_ * step_);
      if (s.done >= s.work - step_ / 2) {
        s.done = s.work;
        s.ended = now_;
      }
    }
  }
  bool IsDone() const {
    return std::all_of(jobs_.begin(), jobs_.end(), [](const auto& j) { return j.second.ended > 0; });
  }
  double TimeOf(const std::string& name) const { return jobs_.at(name).ended - jobs_.at(name).arrived; }
  double Mean() const {
    double sum = 0;
    for (const auto& [name, s] : jobs_) sum += s.ended - s.arrived;
    return sum / static_cast<double>(jobs_.size());
  }
  double Last() const {
    double last = 0;
    for (const auto& [name, s] : jobs_) last = std::max(last, s.ended);
    return last;
  }
  double now() const { return now_; }
  bool HasEnded(const std::string& name) const { return jobs_.at(name).ended > 0; }

 private:
  struct State {
    double work = 0, done = 0, arrived = 0, ended = 0, waited = 0;
    bool is_in_front = false, is_overdue = false;
  };
  Order order_;
  double ageing_, step_, now_ = 0;
  std::map<std::string, State> jobs_;
};

TEST(JobOrder, n_equal_jobs_take_n_plus_1_of_2n_of_the_fair_mean_and_the_last_is_no_later) {
  for (const int n : {1, 2, 4, 20}) {
    Fluid fair(Order::kFair, 8, 0.01), shortest(Order::kShortest, 8, 0.01);
    for (Fluid* fluid : {&fair, &shortest}) {
      for (int i = 0; i < n; ++i) fluid->Add("job" + std::to_string(i), 1.0);
      while (!fluid->IsDone()) fluid->Step();
    }
    EXPECT_NEAR(shortest.Mean() / fair.Mean(), (n + 1) / (2.0 * n), 0.01) << n;
    EXPECT_NEAR(shortest.Last(), fair.Last(), 0.01 * n + 1e-9) << n;
  }
}

TEST(JobOrder, nobody_starves_under_an_endless_stream_of_short_jobs) {
  constexpr double kAgeing = 4, kWork = 10;
  Fluid fluid(Order::kShortest, kAgeing, 0.05);
  fluid.Add("long", kWork);
  int next = 0;
  double due = 0;
  while (!fluid.HasEnded("long") && fluid.now() < 1000) {
    if (fluid.now() >= due) {  // as much work as the link can do, for ever
      fluid.Add("short" + std::to_string(next++), 1.0);
      due += 1.0;
    }
    fluid.Step();
  }
  ASSERT_TRUE(fluid.HasEnded("long"));
  EXPECT_LE(fluid.TimeOf("long"), (kAgeing + 1) * kWork + 2);
  EXPECT_GE(fluid.TimeOf("long"), kAgeing * kWork);  // until then the short ones went first
}

TEST(JobOrder, a_long_job_starves_without_ageing) {
  Fluid fluid(Order::kShortest, 1e9, 0.05);
  fluid.Add("long", 10);
  int next = 0;
  double due = 0;
  while (fluid.now() < 200) {
    if (fluid.now() >= due) {
      fluid.Add("short" + std::to_string(next++), 1.0);
      due += 1.0;
    }
    fluid.Step();
  }
  EXPECT_FALSE(fluid.HasEnded("long"));  // what the bound is there for
}

}  // namespace
}  // namespace mlnet::plan
