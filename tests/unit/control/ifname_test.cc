// SPDX-License-Identifier: Apache-2.0
// NCCL_SOCKET_IFNAME's documented grammar, and the report that a prefix picked bond0.2093.
#include "mlnet/ifname.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace mlnet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kHost[] = {"lo", "eth0", "eth1", "eth10", "ib0", "docker0", "docker_gwbridge", "bond0", "bond0.2093"};

std::vector<std::string> Chosen(const char* text) {
  std::vector<std::string> chosen;
  const auto list = IfnameList::Parse(text);
  EXPECT_TRUE(list) << list.error().ToString();
  if (!list) return chosen;
  for (const char* name : kHost) {
    if (list->Matches(name)) chosen.emplace_back(name);
  }
  return chosen;
}

TEST(ifname, plain_names_are_prefixes) {
  EXPECT_THAT(Chosen("eth"), ElementsAre("eth0", "eth1", "eth10"));
  EXPECT_THAT(Chosen("eth1,ib"), ElementsAre("eth1", "eth10", "ib0"));
  EXPECT_THAT(Chosen("enp"), ElementsAre());
}

TEST(ifname, prefix_takes_the_vlan_of_a_bond_and_exact_does_not) {
  EXPECT_THAT(Chosen("bond0"), ElementsAre("bond0", "bond0.2093"));
  EXPECT_THAT(Chosen("=bond0"), ElementsAre("bond0"));
}

TEST(ifname, equals_holds_for_the_whole_list) {
  EXPECT_THAT(Chosen("=eth0,eth1"), ElementsAre("eth0", "eth1"));
  EXPECT_THAT(Chosen("=eth0,=eth1"), ElementsAre("eth0", "eth1"));
  EXPECT_THAT(Chosen("=eth"), ElementsAre());
}

TEST(ifname, caret_excludes) {
  EXPECT_THAT(Chosen("^docker,lo,bond"), ElementsAre("eth0", "eth1", "eth10", "ib0"));
  EXPECT_THAT(Chosen("^=docker0,lo,eth1"), ElementsAre("eth0", "eth10", "ib0", "docker_gwbridge", "bond0", "bond0.2093"));
}

TEST(ifname, what_nccl_takes_silently_and_never_matches_is_refused) {
  for (const char* text : {"", "^", "=", "eth0,", ",eth0", "eth0,,eth1", "eth0,^lo", "eth0,=lo", "=^eth0", "^^eth0", "=eth0,==eth1",
                           "eth0, eth1", "eth0:1", "name_of_17_bytes_"}) {
    const auto list = IfnameList::Parse(text);
    ASSERT_FALSE(list) << text;
    EXPECT_EQ(list.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(list.error().message, HasSubstr(std::string("'") + text + "'"));
    EXPECT_THAT(list.error().hint, HasSubstr("NCCL_SOCKET_IFNAME"));
  }
}

}  // namespace
}  // namespace mlnet
