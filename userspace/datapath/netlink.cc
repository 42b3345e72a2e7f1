// SPDX-License-Identifier: Apache-2.0
#include "datapath/netlink.h"

#include <cerrno>
#include <memory>

#include "base/errno_error.h"

namespace mlnet::datapath {

Result<void> NetlinkRequest::Send(const std::string& what) {
  header_->nlmsg_flags |= NLM_F_ACK;
  return Exchange(what, [](const nlmsghdr*) {});
}

Result<void> NetlinkRequest::Ask(const std::string& what, const std::function<void(const nlmsghdr*)>& take) {
  return Exchange(what, take);
}

Result<void> NetlinkRequest::Exchange(const std::string& what, const std::function<void(const nlmsghdr*)>& take) {
  const std::unique_ptr<mnl_socket, int (*)(mnl_socket*)> socket(mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC),
                                                                mnl_socket_close);
  if (!socket || mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID) < 0 ||
      mnl_socket_sendto(socket.get(), header_, header_->nlmsg_len) < 0) {
    return tl::make_unexpected(ErrnoError(what, errno));
  }
  const mnl_cb_t on_answer = [](const nlmsghdr* answer, void* to) {
    (*static_cast<const std::function<void(const nlmsghdr*)>*>(to))(answer);
    return MNL_CB_OK;
  };
  const bool has_end = (header_->nlmsg_flags & (NLM_F_ACK | NLM_F_DUMP)) != 0;
  std::array<char, 32768> bytes;
  int state = MNL_CB_OK;
  do {
    const ssize_t length = mnl_socket_recvfrom(socket.get(), bytes.data(), bytes.size());
    if (length < 0) return tl::make_unexpected(ErrnoError(what, errno));
    state = mnl_cb_run(bytes.data(), static_cast<size_t>(length), 1, mnl_socket_get_portid(socket.get()), on_answer,
                       const_cast<std::function<void(const nlmsghdr*)>*>(&take));
    if (state < 0) return tl::make_unexpected(ErrnoError(what, errno));
  } while (has_end && state > MNL_CB_STOP);
  return {};
}

void ForEachAttribute(const nlmsghdr* message, unsigned body_bytes, std::function<void(const nlattr*)> take) {
  const mnl_attr_cb_t on_attribute = [](const nlattr* attribute, void* to) {
    (*static_cast<std::function<void(const nlattr*)>*>(to))(attribute);
    return MNL_CB_OK;
  };
  mnl_attr_parse(message, body_bytes, on_attribute, &take);
}

}  // namespace mlnet::datapath
