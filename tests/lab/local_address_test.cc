// SPDX-License-Identifier: Apache-2.0
// Hosts on which others picked the wrong address: 127.0.1.1, docker0, a NIC of another network. Each test has a network
// namespace of its own; needs root.
#include "torch/local_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <stdexcept>

namespace mlnet::torch_backend {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LocalAddress : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    for (const char* variable : {"MASTER_ADDR", "MLNET_IFNAME", "NCCL_SOCKET_IFNAME"}) ::unsetenv(variable);
    Ip("link set lo up");
    Ip("addr add 127.0.1.1/8 dev lo");
    Nic("docker0", "172.17.0.1/16");
    Nic("mgmt0", "192.168.7.5/24");
    Nic("eth0", "10.1.0.5/24");
    Nic("eth1", "10.2.0.5/24");
  }
  static void Ip(const std::string& arguments) { ASSERT_EQ(std::system(("ip " + arguments).c_str()), 0) << arguments; }
  static void Nic(const std::string& name, const std::string& address) {
    Ip("link add " + name + " type bridge");
    Ip("addr add " + address + " dev " + name);
    Ip("link set " + name + " up");
  }
  static std::string Refusal() {
    try {
      return "took " + ReachableAddress();
    } catch (const std::runtime_error& e) {
      return e.what();
    }
  }
};

TEST_F(LocalAddress, leads_to_the_master) {
  ::setenv("MASTER_ADDR", "10.2.0.9", 1);
  EXPECT_EQ(ReachableAddress(), "10.2.0.5");
}

TEST_F(LocalAddress, without_a_master_docker_comes_last) {
  EXPECT_EQ(ReachableAddress(), "192.168.7.5");
  for (const char* name : {"mgmt0", "eth0", "eth1"}) Ip(std::string("link del ") + name);
  EXPECT_EQ(ReachableAddress(), "172.17.0.1");
  Ip("link del docker0");
  EXPECT_EQ(ReachableAddress(), "127.0.0.1");
}

TEST_F(LocalAddress, a_variable_decides_and_the_route_among_what_it_allows) {
  ::setenv("NCCL_SOCKET_IFNAME", "eth", 1);
  EXPECT_EQ(ReachableAddress(), "10.1.0.5");
  ::setenv("MASTER_ADDR", "10.2.0.9", 1);
  EXPECT_EQ(ReachableAddress(), "10.2.0.5");
  ::setenv("NCCL_SOCKET_IFNAME", "^docker,lo,eth1", 1);
  EXPECT_EQ(ReachableAddress(), "192.168.7.5");
  ::setenv("MLNET_IFNAME", "=eth0", 1);
  EXPECT_EQ(ReachableAddress(), "10.1.0.5");
}

TEST_F(LocalAddress, a_variable_that_allows_nothing_lists_what_there_is) {
  ::setenv("NCCL_SOCKET_IFNAME", "ib", 1);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("NCCL_SOCKET_IFNAME=ib"), HasSubstr("eth0 10.1.0.5"), HasSubstr("MLNET_IFNAME")));
  ::setenv("MLNET_IFNAME", "eth0,^lo", 1);
  EXPECT_THAT(Refusal(), HasSubstr("MLNET_IFNAME: E_INVALID_ARGUMENT"));
}

}  // namespace
}  // namespace mlnet::torch_backend
