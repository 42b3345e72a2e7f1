// SPDX-License-Identifier: Apache-2.0
#include "datapath/attach.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <xdp/libxdp.h>

#include <cerrno>

#include "base/errno_error.h"
#include "datapath/netdev.h"
#include "datapath/skeleton.h"

namespace mlnet::datapath {
namespace {

constexpr unsigned kRunPriority = 40;  // among the programs of a dispatcher; most use 50
constexpr const char* kDispatchedName = "ml_dispatched";

struct Occupant {
  uint32_t prog_id = 0;  // 0: the NIC is free
  std::string name;
  bool is_hidden = false;  // this process may not open it by its id
};

Occupant FindOccupant(int ifindex) {
  LIBBPF_OPTS(bpf_xdp_query_opts, query);
  Occupant occupant;
  if (bpf_xdp_query(ifindex, 0, &query) != 0) return occupant;
  for (const uint32_t id : {query.prog_id, query.drv_prog_id, query.skb_prog_id, query.hw_prog_id}) {
    if (id != 0) occupant.prog_id = id;
  }
  if (occupant.prog_id == 0) return occupant;
  const Fd fd(bpf_prog_get_fd_by_id(occupant.prog_id));
  occupant.is_hidden = !fd && errno == EPERM;
  bpf_prog_info info{};
  __u32 bytes = sizeof(info);
  if (fd && bpf_obj_get_info_by_fd(fd.get(), &info, &bytes) == 0) occupant.name = info.name;
  return occupant;
}

std::string Describe(const Occupant& occupant) {
  const std::string id = std::to_string(occupant.prog_id);
  const std::string name = occupant.name.empty() ? "" : " ('" + occupant.name + "')";
  const std::string hidden = occupant.is_hidden ? ", whose name mlnetd may not ask for (bpftool prog show id " + id + ")" : "";
  return "another XDP program is attached" + name + ", id " + id + hidden;
}

uint32_t ProgId(int fd) {
  bpf_prog_info info{};
  __u32 bytes = sizeof(info);
  return bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0 ? info.id : 0;
}

// Of the program that `ifindex` has; empty: of none.
std::string ModeOf(int ifindex) {
  LIBBPF_OPTS(bpf_xdp_query_opts, query);
  if (bpf_xdp_query(ifindex, 0, &query) != 0) return "";
  return query.drv_prog_id != 0 ? "native" : query.skb_prog_id != 0 ? "generic" : "";
}

}  // namespace

// A small program that libxdp makes an extension of its dispatcher. It hands packets over by the program's own ml_programs, and
// so to what a later daemon puts there.
struct Attachment::Dispatcher {
  ~Dispatcher() {
    if (program != nullptr && is_attached) xdp_program__detach(program, ifindex, mode, 0);
    if (program != nullptr) xdp_program__close(program);
    if (skeleton != nullptr) xdp_dispatched__destroy(skeleton);
  }
  xdp_dispatched* skeleton = nullptr;
  xdp_program* program = nullptr;
  int ifindex = 0;
  xdp_attach_mode mode = XDP_MODE_NATIVE;
  bool is_attached = false;
};

Attachment::Attachment() = default;
Attachment::Attachment(Attachment&&) noexcept = default;
Attachment::~Attachment() = default;

Result<Attachment> Attachment::Attach(const Program& program, const AttachRequest& request) {
  auto dev = ReadNetdev(request.name);
  if (!dev) return tl::make_unexpected(dev.error());
  if (auto taken = TakeOver(program, request, dev->ifindex)) return std::move(*taken);
  if (const Occupant occupant = FindOccupant(dev->ifindex); occupant.prog_id != 0) {
    if (!request.shared) {
      return Err(ErrorCode::kConflict, "attach to " + request.name + ": " + Describe(occupant),
                 "detach it (ip link set dev " + request.name + " xdp off), or attach with share = \"shared\"");
    }
    if (occupant.is_hidden) {
      return Err(ErrorCode::kPermission, "attach to " + request.name + " through the libxdp dispatcher: " + Describe(occupant) +
                                             "; libxdp opens it by its id, which takes CAP_SYS_ADMIN",
                 "run mlnetd as root: userspace/daemon/SECURITY.md has the settings of its unit");
    }
    auto attached = ViaDispatcher(program, request, dev->ifindex);
    if (attached) attached->state_.why = Describe(occupant);
    else attached.error().message += "; " + Describe(occupant);
    return attached;
  }
  if (request.mode == "generic") return ViaLink(program, request, dev->ifindex, false);
  auto native = ViaLink(program, request, dev->ifindex, true);
  if (native || request.mode == "native" || native.error().code == ErrorCode::kPermission) return native;
  auto generic = ViaLink(program, request, dev->ifindex, false);
  if (generic) generic->state_.why = "native mode refused: " + native.error().message;
  return generic;
}

// The mode is a link's for life: one in another than is asked for now gives way.
std::optional<Attachment> Attachment::TakeOver(const Program& program, const AttachRequest& request, int ifindex) {
  const std::string mode = ModeOf(ifindex);
  Attachment attachment;
  auto link = PinnedLink::TakeOver(request.pin_link, ifindex, program.ingress_fd());
  if (!link || (request.mode != "auto" && request.mode != mode)) return std::nullopt;
  if (FindOccupant(ifindex).prog_id != ProgId(program.ingress_fd())) return std::nullopt;  // of another namespace's interface
  attachment.link_ = std::move(*link);
  attachment.link_.Stay(request.stays);
  attachment.state_ = {ifindex, mode, "bpf_link", "taken over from an earlier mlnetd", ProgId(program.ingress_fd())};
  return attachment;
}

Result<Attachment> Attachment::ViaLink(const Program& program, const AttachRequest& request, int ifindex, bool native) {
  LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE);
  Fd link(bpf_link_create(program.ingress_fd(), ifindex, BPF_XDP, &opts));
  if (!link) {
    const int err = errno;
    const std::string hint = err == EPERM ? "run mlnetd as root, or with CAP_BPF and CAP_NET_ADMIN"
                             : native     ? "the driver may not support native XDP here, or not with this MTU (try 3498): mode = \"auto\" or \"generic\""
                                          : "";
    return tl::make_unexpected(ErrnoError(std::string("attach XDP to ") + request.name + " in " +
                                              (native ? "native" : "generic") + " mode", err, hint));
  }
  auto pinned = PinnedLink::Make(std::move(link), request.pin_link);
  if (!pinned) return tl::make_unexpected(pinned.error());
  Attachment attachment;
  attachment.link_ = std::move(*pinned);
  attachment.link_.Stay(request.stays);
  attachment.state_ = {ifindex, native ? "native" : "generic", "bpf_link", "no other program on the NIC",
                       ProgId(program.ingress_fd())};
  return attachment;
}

Result<Attachment> Attachment::ViaDispatcher(const Program& program, const AttachRequest& request, int ifindex) {
  const std::string what = "attach to " + request.name + " through the libxdp dispatcher";
  auto d = std::make_unique<Dispatcher>();
  d->ifindex = ifindex;
  d->mode = request.mode == "generic" ? XDP_MODE_SKB : XDP_MODE_NATIVE;
  d->skeleton = xdp_dispatched__open();
  if (d->skeleton == nullptr) return tl::make_unexpected(ErrnoError(what, errno));
  if (const int rc = bpf_map__reuse_fd(d->skeleton->maps.ml_programs, program.MapFd("ml_programs")); rc != 0) {
    return tl::make_unexpected(ErrnoError(what, -rc));
  }
  DECLARE_LIBXDP_OPTS(xdp_program_opts, choice, .obj = d->skeleton->obj, .prog_name = kDispatchedName);
  d->program = xdp_program__create(&choice);
  if (const long err = libxdp_get_error(d->program); err != 0) {
    d->program = nullptr;
    return tl::make_unexpected(ErrnoError(what, static_cast<int>(-err)));
  }
  xdp_program__set_run_prio(d->program, kRunPriority);
  xdp_program__set_chain_call_enabled(d->program, XDP_PASS, true);
  if (const int rc = xdp_program__attach(d->program, ifindex, d->mode, 0); rc != 0) {
    Error error = ErrnoError(what, -rc, "detach the other program, or load it through libxdp (xdp-loader) too");
    error.code = ErrorCode::kConflict;
    return tl::make_unexpected(error);
  }
  d->is_attached = true;
  RemoveFromDispatcher(ifindex, request.earlier_prog_id);
  Attachment attachment;
  attachment.state_ = {ifindex, d->mode == XDP_MODE_SKB ? "generic" : "native", "dispatcher", "", xdp_program__id(d->program)};
  attachment.dispatcher_ = std::move(d);
  return attachment;
}

bool Attachment::IsAlive() const {
  if (!link_) return dispatcher_ != nullptr && FindOccupant(state_.ifindex).prog_id != 0;
  return link_.IsAlive();
}

// The dispatcher swaps what it holds in one step. An id is never used twice; the name is a second look.
void RemoveFromDispatcher(int ifindex, uint32_t prog_id) {
  xdp_multiprog* dispatcher = prog_id != 0 ? xdp_multiprog__get_from_ifindex(ifindex) : nullptr;
  if (libxdp_get_error(dispatcher) != 0 || dispatcher == nullptr) return;
  const xdp_attach_mode mode = xdp_multiprog__attach_mode(dispatcher);
  xdp_multiprog__close(dispatcher);
  xdp_program* program = xdp_program__from_id(prog_id);
  if (libxdp_get_error(program) != 0) return;
  if (std::string(xdp_program__name(program)) == kDispatchedName) xdp_program__detach(program, ifindex, mode, 0);
  xdp_program__close(program);
}

}  // namespace mlnet::datapath
