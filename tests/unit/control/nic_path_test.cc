// SPDX-License-Identifier: Apache-2.0
// What an interface is decides where the program goes. The links are made up, as rtnetlink would describe them:
// this kernel has neither bonds nor VLANs.
#include "control/nic_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mlnet::control {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// lo, two NICs in a bond with VLAN 2093 on it, a NIC of its own with VLAN 100, and what else hosts have.
std::vector<Link> Links(uint8_t bond_mode = 4) {
  return {{.ifindex = 1, .name = "lo", .is_loopback = true},
          {.ifindex = 2, .name = "eth0", .master = 4},
          {.ifindex = 3, .name = "eth1", .master = 4},
          {.ifindex = 4, .name = "bond0", .kind = "bond", .bond_mode = bond_mode},
          {.ifindex = 5, .name = "bond0.2093", .kind = "vlan", .below = 4, .vlan_id = 2093},
          {.ifindex = 6, .name = "eth2"},
          {.ifindex = 7, .name = "eth2.100", .kind = "vlan", .below = 6, .vlan_id = 100},
          {.ifindex = 8, .name = "docker0", .kind = "bridge"},
          {.ifindex = 9, .name = "veth1a", .kind = "veth", .master = 8},
          {.ifindex = 10, .name = "mv0", .kind = "macvlan", .below = 6},
          {.ifindex = 11, .name = "tap0", .kind = "tun"},
          {.ifindex = 12, .name = "veth2b", .kind = "veth", .below = 0},
          {.ifindex = 13, .name = "iv0", .kind = "ipvlan", .below = 6},
          {.ifindex = 14, .name = "blue", .kind = "vrf"},
          {.ifindex = 15, .name = "eth3", .master = 14},
          {.ifindex = 16, .name = "bond1", .kind = "bond"},
          {.ifindex = 17, .name = "mv1", .kind = "macvlan"},
          {.ifindex = 18, .name = "odd0", .kind = "kind_of_tomorrow"}};
}

NicPath PathOf(const std::string& name, const std::vector<Link>& links = Links()) {
  const auto path = FindNicPath(links, name);
  EXPECT_TRUE(path) << path.error().ToString();
  return path ? *path : NicPath{};
}

Error PathErrorOf(const std::string& name) {
  const auto path = FindNicPath(Links(), name);
  EXPECT_FALSE(path) << name << " was accepted";
  return path ? Error{} : path.error();
}

TEST(nic_path, a_nic_carries_the_program_itself) {
  for (const char* name : {"eth2", "veth2b", "eth3", "odd0"}) {
    const NicPath path = PathOf(name);
    EXPECT_THAT(path.devices, ElementsAre(name));
    EXPECT_EQ(path.no_native, "");
  }
}

TEST(nic_path, a_bond_is_its_members) {
  for (const uint8_t mode : {0, 1, 2, 4}) {
    const NicPath path = PathOf("bond0", Links(mode));
    EXPECT_THAT(path.devices, ElementsAre("eth0", "eth1")) << int{mode};
    EXPECT_EQ(path.no_native, "");
  }
}

TEST(nic_path, a_bond_that_takes_no_frames_from_xdp_is_generic_and_named_by_its_mode) {
  const std::pair<uint8_t, const char*> modes[] = {{3, "broadcast"}, {5, "balance-tlb"}, {6, "balance-alb"}, {7, "unknown"}};
  for (const auto& [mode, name] : modes) {
    const NicPath path = PathOf("bond0", Links(mode));
    EXPECT_THAT(path.devices, ElementsAre("bond0"));
    EXPECT_THAT(path.no_native, HasSubstr(name));
    EXPECT_THAT(path.instead, HasSubstr("802.3ad"));
  }
}

TEST(nic_path, a_bond_without_members_says_so) { EXPECT_EQ(PathErrorOf("bond1").code, ErrorCode::kUnavailable); }

TEST(nic_path, a_member_of_a_bond_is_refused_and_the_bond_named) {
  const Error error = PathErrorOf("eth1");
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_THAT(error.message, HasSubstr("eth1 belongs to the bond bond0"));
  EXPECT_THAT(error.hint, HasSubstr("mlnetctl iface attach bond0"));
}

TEST(nic_path, a_vlan_is_generic_and_names_its_parent_and_a_way_out) {
  const NicPath path = PathOf("eth2.100");
  EXPECT_THAT(path.devices, ElementsAre("eth2.100"));
  EXPECT_THAT(path.no_native, HasSubstr("VLAN 100 on eth2"));
  EXPECT_THAT(path.instead, HasSubstr("ip link set eth2 vf 0 vlan 100"));
  EXPECT_THAT(PathOf("bond0.2093").no_native, HasSubstr("VLAN 2093 on bond0"));
  EXPECT_THAT(PathOf("bond0.2093").instead, Not(HasSubstr(" vf "))) << "bonds have no virtual functions";
}

TEST(nic_path, bridges_and_macvlans_are_generic) {
  EXPECT_THAT(PathOf("docker0").no_native, HasSubstr("docker0 is a bridge"));
  EXPECT_THAT(PathOf("mv0").no_native, HasSubstr("mv0 is a macvlan on eth2"));
  EXPECT_THAT(PathOf("mv1").no_native, HasSubstr("mv1 is a macvlan, "));
}

TEST(nic_path, a_port_of_a_bridge_is_refused) {
  EXPECT_THAT(PathErrorOf("veth1a").message, HasSubstr("belongs to the bridge docker0"));
}

TEST(nic_path, what_no_other_host_is_behind_is_refused_with_the_nics_named) {
  for (const char* name : {"lo", "tap0", "iv0", "blue"}) {
    const Error error = PathErrorOf(name);
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.message, HasSubstr(std::string(name) + " is ")) << name;
    EXPECT_THAT(error.hint, AllOf(HasSubstr("eth2"), HasSubstr("veth2b"))) << name;
  }
}

TEST(nic_path, an_unknown_name_lists_what_there_is) {
  const Error error = PathErrorOf("eth9");
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(error.hint, HasSubstr("eth0, eth1, bond0"));
}

}  // namespace
}  // namespace mlnet::control
