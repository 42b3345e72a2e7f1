// SPDX-License-Identifier: Apache-2.0
// Keys of running jobs over the end and the restart of daemons: they stay in the kernel meanwhile, the next daemon knows them
// again, and none outlives its job.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "harness/frame.h"
#include "lab/restart_fixture.h"
#include "mlnet/job.h"

namespace mlnet::test {
namespace {

using ::testing::HasSubstr;

class DaemonMacRestart : public RestartLab {
 protected:
  void SetUp() override {
    RestartLab::SetUp();
    more_config_ = "[job]\nmac = true";
    for (const char* host : {"w1", "w2", "a1"}) ASSERT_NO_FATAL_FAILURE(lab_.Start(host, more_config_));
  }
  Fd Keys(const std::string& host) const {
    return Fd(bpf_obj_get((lab_.PinPath(host) + "/v" + std::to_string(MLNET_ABI_VERSION) + "/maps/ml_keys").c_str()));
  }
  std::map<uint32_t, Bytes> KeysOf(const std::string& host) const {
    const Fd map = Keys(host);
    std::map<uint32_t, Bytes> keys;
    uint32_t id = 0;
    for (const uint32_t* last = nullptr; bpf_map_get_next_key(map.get(), last, &id) == 0; last = &id) {
      Bytes bytes(sizeof(mlnet_key));
      if (bpf_map_lookup_elem(map.get(), &id, bytes.data()) == 0) {
        keys[id] = bytes;
      } else {
        EXPECT_EQ(errno, ENOENT) << "removed meanwhile, or unreadable";
      }
    }
    return keys;
  }
  uint64_t NumRefused(const std::string& host) { return lab_.Call(host, "stats")["verdicts"]["DROP_MAC"]["count"]; }
};

TEST_F(DaemonMacRestart, sums_of_a_job_with_a_key_go_on_while_daemons_are_killed_and_restarted) {
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2", "w2"}));
  EXPECT_EQ(lab_.Call("a1", "job.show", {{"name", "demo"}})["spec"]["mac"], true);
  const auto before = KeysOf("a1");
  ASSERT_EQ(before.size(), 1u);
  for (const auto& [host, signal] : {std::pair{"w2", SIGKILL}, {"a1", SIGKILL}, {"w1", SIGTERM}, {"a1", SIGTERM}}) {
    SCOPED_TRACE(host);
    ASSERT_NO_FATAL_FAILURE(Restart(host, signal));
    EXPECT_EQ(KeysOf(host), before) << "each host has the same, as it was";
    ASSERT_NO_FATAL_FAILURE(ExpectProgress(20));
    EXPECT_EQ(lab_.Call(host, "job.show", {{"name", "demo"}})["state"], "ready");
    EXPECT_EQ(NumRefused(host), 0u);
  }
  ASSERT_NO_FATAL_FAILURE(StopRanks());
  for (const char* host : {"w1", "w2", "a1"}) EXPECT_TRUE(WaitUntil([&] { return KeysOf(host).empty(); })) << host;
}

TEST_F(DaemonMacRestart, keys_of_no_job_that_runs_are_removed) {
  ASSERT_NO_FATAL_FAILURE(StartRanks({"w1", "w2"}));
  const auto before = KeysOf("a1");
  ASSERT_EQ(before.size(), 1u);
  lab_.Signal("a1", SIGKILL);
  // As daemons leave them that are killed half through: of an earlier epoch, and of another job.
  const uint32_t id = before.begin()->first;
  for (const uint32_t other : {id + (1U << 16), id + 1}) {
    ASSERT_EQ(bpf_map_update_elem(Keys("a1").get(), &other, before.begin()->second.data(), BPF_ANY), 0);
  }
  ASSERT_EQ(KeysOf("a1").size(), 3u);
  ASSERT_NO_FATAL_FAILURE(lab_.Start("a1", more_config_));
  EXPECT_EQ(KeysOf("a1"), before);
  EXPECT_THAT(lab_.Log("a1"), HasSubstr("removed 2 places"));
  ASSERT_NO_FATAL_FAILURE(ExpectProgress(20));
  StopRanks();
}

}  // namespace
}  // namespace mlnet::test
