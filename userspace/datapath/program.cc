// SPDX-License-Identifier: Apache-2.0
#include "datapath/program.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "base/errno_error.h"
#include "datapath/skeleton.h"

namespace mlnet::datapath {
namespace {

constexpr const char* kCapabilityHint = "run mlnetd as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON";

// libbpf reports through one callback per process; the last warning is the reason of the next error.
std::string& LastWarning() {
  thread_local std::string text;
  return text;
}

int KeepWarning(libbpf_print_level level, const char* format, va_list args) {
  if (level != LIBBPF_WARN) return 0;
  char line[512];
  std::vsnprintf(line, sizeof(line), format, args);
  LastWarning() = line;
  while (!LastWarning().empty() && LastWarning().back() == '\n') LastWarning().pop_back();
  return 0;
}

Error LoadError(int err) {
  const std::string detail = LastWarning().empty() ? "" : " (" + LastWarning() + ")";
  if (err == EPERM || err == EACCES) return ErrnoError("load the XDP programs" + detail, err, kCapabilityHint);
  Error error = ErrnoError("load the XDP programs" + detail, err, "mlnet needs kernel 6.1 or later with BTF");
  if (err == EINVAL || err == E2BIG) error.code = ErrorCode::kUnsupported;
  return error;
}

}  // namespace

Program::Program(std::unique_ptr<xdp_aggregate, Destroy> skeleton, ProgramConfig config)
    : skeleton_(std::move(skeleton)), config_(config) {}
Program::Program(Program&&) noexcept = default;
Program::~Program() = default;

void Program::Destroy::operator()(xdp_aggregate* skeleton) const { xdp_aggregate__destroy(skeleton); }

Result<Program> Program::Load(const ProgramConfig& config) {
  libbpf_set_print(KeepWarning);
  std::unique_ptr<xdp_aggregate, Destroy> skeleton(xdp_aggregate__open());
  if (!skeleton) return tl::make_unexpected(LoadError(errno));
  skeleton->rodata->ml_cfg.port_be = htons(config.port);
  bpf_map__set_max_entries(skeleton->maps.ml_slots, config.slots);
  bpf_program__set_autoload(skeleton->progs.ml_egress_test, false);
  LastWarning().clear();
  if (const int rc = xdp_aggregate__load(skeleton.get()); rc != 0) return tl::make_unexpected(LoadError(-rc));
  return Program(std::move(skeleton), config);
}

int Program::MapFd(const char* name) const {
  return bpf_map__fd(bpf_object__find_map_by_name(skeleton_->obj, name));
}

int Program::ingress_fd() const { return bpf_program__fd(skeleton_->progs.ml_ingress); }
int Program::egress_fd() const { return bpf_program__fd(skeleton_->progs.ml_egress); }

Result<void> Program::Pin(const std::string& dir) const {
  for (const char* sub : {"/maps", "/progs"}) {
    if (::mkdir((dir + sub).c_str(), 0700) != 0 && errno != EEXIST) {
      return tl::make_unexpected(ErrnoError("create " + dir + sub, errno));
    }
  }
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, skeleton_->obj) {
    if (bpf_map__is_internal(map)) continue;
    const std::string path = dir + "/maps/" + bpf_map__name(map);
    if (bpf_obj_pin(bpf_map__fd(map), path.c_str()) != 0) return tl::make_unexpected(ErrnoError("pin " + path, errno));
  }
  const auto& progs = skeleton_->progs;
  for (const bpf_program* program : {progs.ml_ingress, progs.ml_ingress6, progs.ml_server, progs.ml_server6, progs.ml_egress}) {
    const std::string path = dir + "/progs/" + bpf_program__name(program);
    if (bpf_obj_pin(bpf_program__fd(program), path.c_str()) != 0) {
      return tl::make_unexpected(ErrnoError("pin " + path, errno));
    }
  }
  return {};
}

std::string LibbpfVersion() {
  const std::string text = libbpf_version_string();
  return text.starts_with('v') ? text.substr(1) : text;
}

}  // namespace mlnet::datapath
