// SPDX-License-Identifier: Apache-2.0
// A host that sends frames by XDP_TX, as an aggregator does.
#pragma once

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <net/if.h>

#include <cstdio>
#include <memory>

#include "forward.skel.h"
#include "lab_fixture.h"

namespace mlnet::lab_test {

constexpr uint16_t kForwardPort = 9001;

// An XDP program on `via` that sends what arrives for kForwardPort on to `target`, by XDP_TX.
class Forwarder {
 public:
  Forwarder(const Lab& lab, const std::string& via, const std::string& target)
      : program_(forward::open(), &forward::destroy) {
    const Json host = lab.HostStatus(target);
    unsigned mac[6];
    sscanf(host["mac"].get<std::string>().c_str(), "%x:%x:%x:%x:%x:%x", &mac[0], &mac[1], &mac[2], &mac[3],
           &mac[4], &mac[5]);
    for (int i = 0; i < 6; ++i) program_->rodata->target_mac[i] = static_cast<uint8_t>(mac[i]);
    program_->rodata->target_address = inet_addr(host["address"].get<std::string>().c_str());
    program_->rodata->forward_port = kForwardPort;
    EXPECT_EQ(forward::load(program_.get()), 0);
    RunIn(lab.Netns(via), [this] {
      const int ifindex = static_cast<int>(if_nametoindex("eth0"));
      EXPECT_EQ(
          bpf_xdp_attach(ifindex, bpf_program__fd(program_->progs.lab_forward), XDP_FLAGS_DRV_MODE, nullptr),
          0);
    });
  }

 private:
  std::unique_ptr<forward, decltype(&forward::destroy)> program_;
};

}  // namespace mlnet::lab_test
