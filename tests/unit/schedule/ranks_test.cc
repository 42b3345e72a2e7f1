// SPDX-License-Identifier: Apache-2.0
// Several ranks whose gradients are ready at other times and in another order on each: the same collectives in the same order in
// every class, and nobody waits for ever.
#include "unit/schedule/ranks.h"

#include "schedule/order.h"

namespace mlnet::schedule {
namespace {

struct World {
  CoreOptions options;
  std::vector<uint64_t> bytes;     // by tensor
  std::vector<uint32_t> priority;
  size_t num_ranks = 4;
};

World AnyWorld(uint32_t seed) {
  std::mt19937 random(seed);
  World s;
  s.num_ranks = 2 + random() % 4;
  const size_t num_tensors = 1 + random() % 40;
  std::vector<TensorDemand> demands;
  for (size_t i = 0; i < num_tensors; ++i) {
    s.bytes.push_back(random() % 4 == 0 ? random() % 8 : random() % 20000);
    s.priority.push_back(static_cast<uint32_t>(num_tensors - 1 - i));
    demands.push_back({s.priority[i], s.bytes[i]});
  }
  Policy& policy = s.options.policy;
  policy.partition_bytes = random() % 3 == 0 ? 0 : 200 + random() % 5000;
  policy.classes = MapBytes(demands, 1 + random() % 8);
  policy.credit_bytes = random() % 4 == 0 ? 0 : 1 + random() % 10000;
  for (uint64_t& window : policy.window_bytes) window = random() % 3 == 0 ? 1 + random() % 3000 : 0;
  return s;
}

// Every step all tensors, in production order; the next step begins on a rank when its own last tensor is in.
class Training {
 public:
  Training(Ranks& ranks, const World& world, int num_steps) : ranks_(ranks), world_(world), steps_left_(ranks.size(), num_steps) {
    open_.resize(ranks.size());
    ranks_.on_finish = [this](size_t rank, const Chunk&, bool is_last) {
      if (is_last && --open_[rank] == 0) Step(rank);
    };
    for (size_t r = 0; r < ranks.size(); ++r) Step(r);
  }

  std::function<void(size_t, int)> before_step = [](size_t, int) {};

 private:
  void Step(size_t rank) {
    if (steps_left_[rank]-- == 0) return;
    before_step(rank, steps_left_[rank]);
    open_[rank] = world_.bytes.size();
    uint64_t produced = ranks_.now() + ranks_.Below(3000);
    for (size_t i = 0; i < world_.bytes.size(); ++i) {
      const TaskId id = ranks_.core(rank).Enqueue({.bytes = world_.bytes[i], .priority = world_.priority[i], .align_bytes = 8});
      produced += ranks_.Below(300);
      ranks_.At(produced + ranks_.Below(2000), [this, rank, id] { ranks_.core(rank).NotifyReady(id); });
    }
  }

  Ranks& ranks_;
  const World& world_;
  std::vector<int> steps_left_;
  std::vector<size_t> open_;
};

TEST(Ranks, whatever_is_ready_first_each_class_has_one_order_and_all_is_done) {
  uint64_t num_different = 0, num_chunks = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const World world = AnyWorld(seed);
    Ranks ranks(world.num_ranks, world.options, seed);
    Training training(ranks, world, 3);
    ranks.Run();
    ASSERT_NO_FATAL_FAILURE(ranks.ExpectSameOrderInEachClass());
    ASSERT_NO_FATAL_FAILURE(ranks.ExpectAllDone());
    for (size_t i = 0; i < ranks.all(0).size(); ++i) {
      num_different += ranks.all(0)[i].task != ranks.all(1)[i].task;
      ++num_chunks;
    }
  }
  EXPECT_GT(num_different * 10, num_chunks);  // or the ranks did not jitter, and nothing was tried
}

TEST(Ranks, credit_and_windows_may_differ_between_ranks) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const World world = AnyWorld(seed);
    Ranks ranks(world.num_ranks, world.options, seed);
    Training training(ranks, world, 2);
    for (size_t r = 0; r < ranks.size(); ++r) {
      Policy policy = world.options.policy;
      policy.credit_bytes = 1 + ranks.Below(5000);
      policy.window_bytes = {};
      ranks.core(r).SetPolicy(policy);
    }
    ranks.Run();
    ASSERT_NO_FATAL_FAILURE(ranks.ExpectSameOrderInEachClass());
    ASSERT_NO_FATAL_FAILURE(ranks.ExpectAllDone());
  }
}

TEST(Ranks, a_policy_that_changes_at_an_agreed_step_keeps_one_order) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const World world = AnyWorld(seed), other = AnyWorld(seed + 1000);
    Ranks ranks(world.num_ranks, world.options, seed);
    Training training(ranks, world, 4);
    training.before_step = [&](size_t rank, int steps_left) {
      if (steps_left == 1) ranks.core(rank).SetPolicy(other.options.policy);
    };
    ranks.Run();
    ASSERT_NO_FATAL_FAILURE(ranks.ExpectSameOrderInEachClass());
    ASSERT_NO_FATAL_FAILURE(ranks.ExpectAllDone());
  }
}

TEST(Ranks, ranks_that_spent_their_credit_on_different_classes_do_not_wait_for_each_other_for_ever) {
  const ClassMap map{.num_levels = 2, .last_priority = {0, UINT32_MAX}};
  Ranks ranks(2, {.policy = {.partition_bytes = 100, .classes = map, .credit_bytes = 100}}, 1);
  std::vector<TaskId> low, urgent;
  for (size_t r = 0; r < 2; ++r) {
    low.push_back(ranks.core(r).Enqueue({.bytes = 1000, .priority = 1, .align_bytes = 4}));
    urgent.push_back(ranks.core(r).Enqueue({.bytes = 1000, .priority = 0, .align_bytes = 4}));
  }
  ranks.core(0).NotifyReady(low[0]);
  ranks.core(1).NotifyReady(urgent[1]);
  ranks.At(10, [&] {
    ranks.core(0).NotifyReady(urgent[0]);
    ranks.core(1).NotifyReady(low[1]);
  });
  ranks.Run();
  ranks.ExpectAllDone();
  ranks.ExpectSameOrderInEachClass();
  // Rank 0 had spent its credit on a low chunk; all of the urgent ones overtook the rest.
  for (size_t i = 1; i <= 10; ++i) EXPECT_EQ(ranks.all(0)[i].task, urgent[0]) << i;
}

TEST(Ranks, pushes_and_the_pulls_that_follow_them_keep_one_order) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Policy policy{.partition_bytes = 300, .classes = {.num_levels = 4, .last_priority = {0, 1, 2, UINT32_MAX}}};
    policy.credit_bytes = seed % 2 == 0 ? 0 : 500;
    policy.is_immediate = seed % 3 != 0;
    Ranks ranks(3, {.policy = policy}, seed);
    for (size_t r = 0; r < ranks.size(); ++r) {
      for (uint32_t i = 0; i < 20; ++i) {  // pulls in the odd classes, each behind its push
        const TaskId push = ranks.core(r).Enqueue({.bytes = 100 * i, .priority = 2 * (i % 2), .align_bytes = 4});
        ranks.core(r).Enqueue({.bytes = 100 * i, .priority = 2 * (i % 2) + 1, .align_bytes = 4, .follows = push});
        ranks.At(ranks.Below(3000), [&ranks, r, push] { ranks.core(r).NotifyReady(push); });
      }
    }
    ranks.Run();
    ASSERT_NO_FATAL_FAILURE(ranks.ExpectSameOrderInEachClass());
    ASSERT_NO_FATAL_FAILURE(ranks.ExpectAllDone());
  }
}

}  // namespace
}  // namespace mlnet::schedule
