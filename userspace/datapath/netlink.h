// SPDX-License-Identifier: Apache-2.0
// One rtnetlink request and its answers.
#pragma once

#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>

#include <array>
#include <functional>
#include <string>

#include "mlnet/error.h"

namespace mlnet::datapath {

class NetlinkRequest {
 public:
  NetlinkRequest(uint16_t type, uint16_t flags) {
    header_ = mnl_nlmsg_put_header(buffer_.data());
    header_->nlmsg_type = type;
    header_->nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    header_->nlmsg_seq = 1;
  }
  template <typename Body>
  Body& Put() {
    return *static_cast<Body*>(mnl_nlmsg_put_extra_header(header_, sizeof(Body)));
  }
  nlmsghdr* header() { return header_; }

  /// Waits for the acknowledgement.
  Result<void> Send(const std::string& what);
  /// Gives every answer to `take`.
  Result<void> Ask(const std::string& what, const std::function<void(const nlmsghdr*)>& take);

 private:
  Result<void> Exchange(const std::string& what, const std::function<void(const nlmsghdr*)>& take);

  alignas(nlmsghdr) std::array<char, 4096> buffer_{};
  nlmsghdr* header_;
};

void ForEachAttribute(const nlmsghdr* message, unsigned body_bytes, std::function<void(const nlattr*)> take);

}  // namespace mlnet::datapath
