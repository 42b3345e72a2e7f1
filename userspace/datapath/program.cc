// SPDX-License-Identifier: Apache-2.0
#include "datapath/program.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/errno_error.h"
#include "base/fd.h"
#include "datapath/load_error.h"
#include "datapath/skeleton.h"

namespace mlnet::datapath {
namespace {

struct MapShape {
  const char* what;
  uint32_t there, wanted;
};

// Given to `map` where it is as this build and configuration want it.
Result<void> ReusePinned(bpf_map* map, const std::string& path) {
  const std::string name = bpf_map__name(map);
  const Fd fd(bpf_obj_get(path.c_str()));
  if (!fd) return Err(ErrorCode::kConflict, "the earlier mlnetd's map " + name + " is not pinned");
  bpf_map_info info{};
  __u32 bytes = sizeof(info);
  if (bpf_obj_get_info_by_fd(fd.get(), &info, &bytes) != 0) return tl::make_unexpected(ErrnoError("look at " + path, errno));
  const MapShape shapes[] = {{"type", info.type, bpf_map__type(map)},
                             {"key bytes", info.key_size, bpf_map__key_size(map)},
                             {"value bytes", info.value_size, bpf_map__value_size(map)},
                             {"entries", info.max_entries, bpf_map__max_entries(map)}};
  for (const MapShape& shape : shapes) {
    if (shape.there == shape.wanted) continue;
    return Err(ErrorCode::kConflict, "the earlier mlnetd's map " + name + " has " + shape.what + " " + std::to_string(shape.there) +
                                         ", this one wants " + std::to_string(shape.wanted));
  }
  if (const int rc = bpf_map__reuse_fd(map, fd.get()); rc != 0) return tl::make_unexpected(ErrnoError("take over " + path, -rc));
  return {};
}

Result<void> MakeFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return tl::make_unexpected(ErrnoError("create " + path, errno));
  return {};
}

Result<void> PinAnew(int fd, const std::string& path) {
  ::unlink(path.c_str());
  if (bpf_obj_pin(fd, path.c_str()) != 0) return tl::make_unexpected(ErrnoError("pin " + path, errno));
  return {};
}

}  // namespace

Program::Program(Skeleton skeleton, ProgramConfig config)
    : skeleton_(std::move(skeleton)), config_(config) {}
Program::Program(Program&&) noexcept = default;
Program::~Program() = default;

void Program::Destroy::operator()(xdp_aggregate* skeleton) const { xdp_aggregate__destroy(skeleton); }

Result<Program::Skeleton> Program::Open(const ProgramConfig& config) {
  BeginLoad();
  Skeleton skeleton(xdp_aggregate__open());
  if (!skeleton) return tl::make_unexpected(LoadError("load the XDP programs", errno));
  skeleton->rodata->ml_cfg.port_be = htons(config.port);
  bpf_map__set_max_entries(skeleton->maps.ml_slots, config.slots);
  bpf_program__set_autoload(skeleton->progs.ml_egress_test, false);
  // The kernel keeps ml_programs to programs of one attach type, and an extension, by which a dispatcher comes in, has none.
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, skeleton->obj) {
    if (bpf_program__expected_attach_type(program) == BPF_XDP) bpf_program__set_expected_attach_type(program, bpf_attach_type{});
  }
  return skeleton;
}

Result<Program> Program::Load(Skeleton skeleton, const ProgramConfig& config) {
  BeginLoad();
  if (const int rc = xdp_aggregate__load(skeleton.get()); rc != 0) return tl::make_unexpected(LoadError("load the XDP programs", -rc));
  return Program(std::move(skeleton), config);
}

Result<Program> Program::Load(const ProgramConfig& config) {
  auto skeleton = Open(config);
  if (!skeleton) return tl::make_unexpected(skeleton.error());
  return Load(std::move(*skeleton), config);
}

Result<Program> Program::LoadOver(const ProgramConfig& config, const std::string& dir) {
  auto skeleton = Open(config);
  if (!skeleton) return tl::make_unexpected(skeleton.error());
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, (*skeleton)->obj) {
    if (bpf_map__is_internal(map)) continue;
    if (auto ok = ReusePinned(map, dir + "/maps/" + bpf_map__name(map)); !ok) return tl::make_unexpected(ok.error());
  }
  auto program = Load(std::move(*skeleton), config);
  std::error_code ec;
  if (program) program->found_inner_pins_ = std::filesystem::exists(dir + "/inner", ec);
  return program;
}

int Program::MapFd(const char* name) const {
  return bpf_map__fd(bpf_object__find_map_by_name(skeleton_->obj, name));
}

OuterMap Program::Outer(const char* name) const {
  return {MapFd(name), name, inner_pins_.empty() ? "" : inner_pins_ + "/" + name};
}

int Program::ingress_fd() const { return bpf_program__fd(skeleton_->progs.ml_ingress); }
int Program::egress_fd() const { return bpf_program__fd(skeleton_->progs.ml_egress); }

Result<void> Program::Pin(const std::string& dir) {
  for (const char* sub : {"/maps", "/progs", "/inner"}) {
    if (auto ok = MakeFolder(dir + sub); !ok) return ok;
  }
  inner_pins_ = dir + "/inner";
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, skeleton_->obj) {
    if (bpf_map__is_internal(map)) continue;
    if (bpf_map__type(map) == BPF_MAP_TYPE_ARRAY_OF_MAPS || bpf_map__type(map) == BPF_MAP_TYPE_HASH_OF_MAPS) {
      if (auto ok = MakeFolder(inner_pins_ + "/" + bpf_map__name(map)); !ok) return ok;
    }
    const std::string path = dir + "/maps/" + bpf_map__name(map);
    if (::access(path.c_str(), F_OK) == 0) continue;  // taken over
    if (auto ok = PinAnew(bpf_map__fd(map), path); !ok) return ok;
  }
  const auto& progs = skeleton_->progs;
  for (const bpf_program* program : {progs.ml_ingress, progs.ml_ingress6, progs.ml_server, progs.ml_server6, progs.ml_mac_check,
                                     progs.ml_mac_set, progs.ml_egress}) {
    if (auto ok = PinAnew(bpf_program__fd(program), dir + "/progs/" + bpf_program__name(program)); !ok) return ok;
  }
  return {};
}

std::string LibbpfVersion() {
  const std::string text = libbpf_version_string();
  return text.starts_with('v') ? text.substr(1) : text;
}

}  // namespace mlnet::datapath
