// SPDX-License-Identifier: Apache-2.0
// The notes of what is to be undone: kept over a crash, forgotten when it is done or the machine has rebooted.
#include "daemon/nic_state.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "unit/temp_folder.h"

namespace mlnet::daemon {
namespace {

using control::Json;

class NicStateTest : public ::testing::Test {
 protected:
  std::string File() const { return (folder_ / "state") + "/x.nics.json"; }
  NicState Open() const { return {folder_ / "state", "x"}; }
  test::TempFolder folder_;
};

TEST_F(NicStateTest, the_next_one_undoes_what_is_noted_once) {
  NicState state = Open();
  EXPECT_FALSE(std::filesystem::exists(File())) << "nothing noted, nothing written";
  ASSERT_TRUE(state.Remember("clsact", "eth0", {{"ifindex", 7}}));
  ASSERT_TRUE(state.Remember("clsact", "eth1", {{"ifindex", 8}}));
  ASSERT_TRUE(state.Remember("qos", "eth0", {{"ifindex", 7}}));
  state.Forget("clsact", "eth1");
  NicState next = Open();
  std::vector<std::string> undone;
  next.UndoAll("clsact", {}, [&](const std::string& iface, const Json& entry) { undone.push_back(iface + " " + entry["ifindex"].dump()); });
  EXPECT_EQ(undone, std::vector<std::string>{"eth0 7"});
  EXPECT_TRUE(Open().Find("clsact", "eth0").is_null());
  EXPECT_EQ(Open().Find("qos", "eth0")["ifindex"], 7);
  next.Forget("qos", "eth0");
  EXPECT_FALSE(std::filesystem::exists(File()));
}

TEST_F(NicStateTest, notes_of_interfaces_that_are_kept_stay) {
  NicState state = Open();
  ASSERT_TRUE(state.Remember("clsact", "eth0", {{"ifindex", 7}}));
  ASSERT_TRUE(state.Remember("clsact", "eth1", {{"ifindex", 8}}));
  std::vector<std::string> undone;
  state.UndoAll("clsact", {"eth1"}, [&](const std::string& iface, const Json&) { undone.push_back(iface); });
  EXPECT_EQ(undone, std::vector<std::string>{"eth0"});
  EXPECT_EQ(Open().All("clsact"), (Json{{"eth1", {{"ifindex", 8}}}}));
}

TEST_F(NicStateTest, notes_of_another_boot_mean_nothing) {
  ASSERT_TRUE(Open().Remember("qos", "eth0", {{"ifindex", 7}}));
  Json content = Json::parse(std::ifstream(File()));
  content["boot_id"] = "another";
  std::ofstream(File()) << content;
  EXPECT_TRUE(Open().Find("qos", "eth0").is_null());
  std::ofstream(File()) << "half a fi";
  EXPECT_TRUE(Open().Find("qos", "eth0").is_null());
}

TEST_F(NicStateTest, a_folder_that_cannot_be_written_is_an_error) {
  NicState state("/proc/nowhere", "x");
  const auto noted = state.Remember("qos", "eth0", {{"ifindex", 7}});
  ASSERT_FALSE(noted);
  EXPECT_NE(noted.error().hint.find("state_dir"), std::string::npos);
}

}  // namespace
}  // namespace mlnet::daemon
