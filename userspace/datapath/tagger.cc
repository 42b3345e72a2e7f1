// SPDX-License-Identifier: Apache-2.0
#include "datapath/tagger.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <net/if.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "base/errno_error.h"
#include "datapath/load_error.h"
#include "datapath/netlink.h"
#include "datapath/skeleton.h"
#include "priority_tag.skel.h"

namespace mlnet::datapath {
namespace {

constexpr auto kTcxEgress = static_cast<bpf_attach_type>(47);  // BPF_TCX_EGRESS, in headers from 6.6 on
constexpr uint32_t kClsactIngress = TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS);
constexpr uint32_t kClsactEgress = TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS);

bpf_tc_hook HookOf(int ifindex, bpf_tc_attach_point where) {
  bpf_tc_hook hook{};
  hook.sz = sizeof(hook);
  hook.ifindex = ifindex;
  hook.attach_point = where;
  return hook;
}

bpf_tc_opts OurPlace() {
  bpf_tc_opts opts{};
  opts.sz = sizeof(opts);
  opts.handle = kTagHandle;
  opts.priority = kTagPriority;
  return opts;
}

struct Filter {
  std::string name;      // as libbpf calls it: "PROGRAM:[ID]"; empty: it has none
  uint32_t prog_id = 0;
};

Filter ReadFilter(const nlmsghdr* answer) {
  Filter filter;
  const mnl_attr_cb_t on_option = [](const nlattr* option, void* to) {
    auto& into = *static_cast<Filter*>(to);
    if (mnl_attr_get_type(option) == TCA_BPF_NAME) into.name = mnl_attr_get_str(option);
    if (mnl_attr_get_type(option) == TCA_BPF_ID) into.prog_id = mnl_attr_get_u32(option);
    return MNL_CB_OK;
  };
  ForEachAttribute(answer, sizeof(tcmsg), [&](const nlattr* attribute) {
    if (mnl_attr_get_type(attribute) == TCA_OPTIONS) mnl_attr_parse_nested(attribute, on_option, &filter);
  });
  return filter;
}

Result<void> ForEachFilter(int ifindex, uint32_t parent, const std::function<void(const nlmsghdr*)>& take) {
  NetlinkRequest request(RTM_GETTFILTER, NLM_F_DUMP);
  auto& filter = request.Put<tcmsg>();
  filter.tcm_family = AF_UNSPEC;
  filter.tcm_ifindex = ifindex;
  filter.tcm_parent = parent;
  return request.Ask("read filters", take);
}

// With a program at our handle and priority.
std::optional<Filter> FilterAtOurPlace(int ifindex) {
  std::optional<Filter> found;
  (void)ForEachFilter(ifindex, kClsactEgress, [&](const nlmsghdr* answer) {
    const auto& at = *static_cast<const tcmsg*>(mnl_nlmsg_get_payload(answer));
    if (at.tcm_handle != kTagHandle || TC_H_MAJ(at.tcm_info) >> 16 != kTagPriority) return;
    if (Filter filter = ReadFilter(answer); filter.prog_id != 0) found = std::move(filter);
  });
  return found;
}

// By its filter's name: only CAP_SYS_ADMIN may open a program by id.
bool IsTagger(const std::optional<Filter>& filter) {
  return filter && filter->name == "ml_tag:[" + std::to_string(filter->prog_id) + "]";
}

bool HasFilters(int ifindex, uint32_t parent) {
  bool has_any = false;
  auto asked = ForEachFilter(ifindex, parent, [&](const nlmsghdr*) { has_any = true; });
  return has_any || !asked;
}

}  // namespace

Tagger::Tagger(std::unique_ptr<priority_tag, Destroy> skeleton) : skeleton_(std::move(skeleton)) {}
Tagger::Tagger(Tagger&&) noexcept = default;
Tagger& Tagger::operator=(Tagger&&) noexcept = default;
Tagger::~Tagger() = default;

void Tagger::Destroy::operator()(priority_tag* skeleton) const { priority_tag__destroy(skeleton); }

Result<Tagger> Tagger::Load(const Program& program, const std::string& dir) {
  std::unique_ptr<priority_tag, Destroy> skeleton(priority_tag__open());
  if (!skeleton) return tl::make_unexpected(ErrnoError("open the tc program", errno));
  skeleton->rodata->ml_cfg.port_be = program.skeleton()->rodata->ml_cfg.port_be;
  bpf_map__reuse_fd(skeleton->maps.ml_jobs, program.MapFd("ml_jobs"));
  // Pinned by name there: libbpf takes over what is of the same shape.
  bpf_map__set_pin_path(skeleton->maps.ml_tags, (dir + "/maps/ml_tags").c_str());
  BeginLoad();
  if (const int rc = priority_tag__load(skeleton.get()); rc != 0) return tl::make_unexpected(LoadError("load the tc programs", -rc));
  return Tagger(std::move(skeleton));
}

int Tagger::fd() const { return bpf_program__fd(skeleton_->progs.ml_tag); }

int Tagger::classifier_fd() const { return bpf_program__fd(skeleton_->progs.ml_classify); }

Result<TagCounters> Tagger::Read() const {
  TagCounters total{};
  std::vector<mlnet_tags> per_cpu(static_cast<size_t>(libbpf_num_possible_cpus()));
  for (uint32_t traffic_class = 0; traffic_class < total.size(); ++traffic_class) {
    if (bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.ml_tags), &traffic_class, per_cpu.data()) != 0) {
      return tl::make_unexpected(ErrnoError("read ml_tags", errno));
    }
    for (const mlnet_tags& one : per_cpu) {
      for (size_t i = 0; i < MLNET_TAGS_MAX; ++i) total[traffic_class].packets[i] += one.packets[i];
    }
  }
  return total;
}

Result<TagAttachment> TagAttachment::Attach(const Tagger& tagger, const std::string& name, const std::string& how,
                                            const std::string& pin) {
  const int ifindex = static_cast<int>(::if_nametoindex(name.c_str()));
  if (ifindex == 0) return tl::make_unexpected(ErrnoError("attach the tc program to " + name, errno));
  if (how == "tcx") return ViaLink(tagger, name, ifindex, pin);
  if (how == "auto") {
    if (auto linked = ViaLink(tagger, name, ifindex, pin); linked) return linked;
  }
  return ViaClsact(tagger, name, ifindex);
}

Result<TagAttachment> TagAttachment::ViaLink(const Tagger& tagger, const std::string& name, int ifindex, const std::string& pin) {
  TagAttachment attachment;
  if (auto taken = PinnedLink::TakeOver(pin, ifindex, tagger.fd())) {
    attachment.link_ = std::move(*taken);
    return attachment;
  }
  Fd link(bpf_link_create(tagger.fd(), ifindex, kTcxEgress, nullptr));
  if (link) {
    auto pinned = PinnedLink::Make(std::move(link), pin);
    if (!pinned) return tl::make_unexpected(pinned.error());
    attachment.link_ = std::move(*pinned);
    return attachment;
  }
  return tl::make_unexpected(ErrnoError("attach the tc program to " + name + " by TCX", errno,
                                        "TCX needs kernel 6.6; priority.attach = \"auto\" takes clsact where it is missing"));
}

Result<TagAttachment> TagAttachment::ViaClsact(const Tagger& tagger, const std::string& name, int ifindex) {
  const std::string what = "attach the tc program to " + name + " by clsact";
  bpf_tc_hook hook = HookOf(ifindex, BPF_TC_EGRESS);
  const int made = bpf_tc_hook_create(&hook);
  if (made != 0 && made != -EEXIST) {
    return tl::make_unexpected(ErrnoError(what, -made, "the kernel needs CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF"));
  }
  const Error taken{ErrorCode::kConflict, what + ": somebody else's filter has handle 0x6d6c at priority 28",
                    "tc filter show dev " + name + " egress"};
  const std::optional<Filter> before = FilterAtOurPlace(ifindex);
  if (before && !IsTagger(before)) return tl::make_unexpected(taken);
  TagAttachment attachment;
  attachment.place_ = std::make_unique<ClsactPlace>(ClsactPlace{name, ifindex, made == 0});
  bpf_tc_opts opts = OurPlace();
  opts.prog_fd = tagger.fd();
  opts.flags = before ? BPF_TC_F_REPLACE : 0;
  const int rc = bpf_tc_attach(&hook, &opts);
  if (rc == 0) return attachment;
  if (rc == -EEXIST) return tl::make_unexpected(taken);  // a filter without a program of this kind
  return tl::make_unexpected(ErrnoError(what, -rc, "the kernel needs CONFIG_NET_CLS_BPF"));
}

TagAttachment& TagAttachment::operator=(TagAttachment&& other) noexcept {
  std::swap(link_, other.link_);
  std::swap(place_, other.place_);
  return *this;
}

TagAttachment::~TagAttachment() {
  if (place_) RemoveFromClsact(*place_);
}

bool TagAttachment::IsAlive() const {
  if (place_) return IsTagger(FilterAtOurPlace(place_->ifindex));
  return link_.IsAlive();
}

void RemoveFromClsact(const ClsactPlace& place) {
  if (static_cast<int>(::if_nametoindex(place.name.c_str())) != place.ifindex) return;
  const bpf_tc_hook hook = HookOf(place.ifindex, BPF_TC_EGRESS);
  if (IsTagger(FilterAtOurPlace(place.ifindex))) {
    const bpf_tc_opts opts = OurPlace();
    bpf_tc_detach(&hook, &opts);
  }
  const bool is_used = HasFilters(place.ifindex, kClsactIngress) || HasFilters(place.ifindex, kClsactEgress);
  if (!place.is_ours || is_used) return;
  bpf_tc_hook both = HookOf(place.ifindex, static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS));
  bpf_tc_hook_destroy(&both);
}

}  // namespace mlnet::datapath
