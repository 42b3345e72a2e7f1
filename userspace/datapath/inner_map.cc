// SPDX-License-Identifier: Apache-2.0
#include "datapath/inner_map.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>

#include <cerrno>
#include <utility>

#include "base/errno_error.h"

namespace mlnet::datapath {
namespace {

Result<Fd> Create(bpf_map_type type, const char* name, uint32_t key, uint32_t value, uint32_t entries, uint32_t flags) {
  LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = flags);
  Fd fd(bpf_map_create(type, name, key, value, entries, &opts));
  if (!fd) {
    return tl::make_unexpected(ErrnoError(std::string("create map ") + name + " with " + std::to_string(entries) +
                                              " entries", errno, "is there enough memory, and LimitMEMLOCK=infinity?"));
  }
  return fd;
}

}  // namespace

Result<Fd> CreateArray(const char* name, uint32_t value_bytes, uint32_t entries, bool mappable, bool any_size) {
  uint32_t flags = 0;
  if (mappable) flags |= BPF_F_MMAPABLE;
  if (any_size) flags |= BPF_F_INNER_MAP;
  return Create(BPF_MAP_TYPE_ARRAY, name, sizeof(uint32_t), value_bytes, entries, flags);
}

Result<Fd> CreateRing(const char* name, uint32_t bytes) { return Create(BPF_MAP_TYPE_RINGBUF, name, 0, 0, bytes, 0); }

Result<Fd> CreateDevmap(const char* name, uint32_t entries) {
  return Create(BPF_MAP_TYPE_DEVMAP, name, sizeof(uint32_t), sizeof(bpf_devmap_val), entries, 0);
}

Result<void> UpdateMap(int map, const std::string& what, uint32_t key, const void* value) {
  if (bpf_map_update_elem(map, &key, value, BPF_ANY) != 0) return tl::make_unexpected(ErrnoError("update " + what, errno));
  return {};
}

Result<Fd> OpenInner(int outer, const std::string& what, uint32_t key) {
  const std::string place = what + " " + std::to_string(key);
  uint32_t id = 0;
  if (bpf_map_lookup_elem(outer, &key, &id) != 0) {
    if (errno == ENOENT) return Err(ErrorCode::kUnavailable, place + " is empty");
    return tl::make_unexpected(ErrnoError("read " + place, errno));
  }
  Fd inner(bpf_map_get_fd_by_id(id));
  if (!inner) return tl::make_unexpected(ErrnoError("open " + place, errno, "taking over what runs needs CAP_SYS_ADMIN"));
  return inner;
}

Result<Place> Place::TakeOver(int outer, const std::string& what, uint32_t key, const InnerShape& shape) {
  auto inner = OpenInner(outer, what, key);
  if (!inner) return tl::make_unexpected(inner.error());
  bpf_map_info info{};
  __u32 bytes = sizeof(info);
  if (bpf_obj_get_info_by_fd(inner->get(), &info, &bytes) != 0) return tl::make_unexpected(ErrnoError("look at " + what, errno));
  if (info.value_size != shape.value_bytes || info.max_entries != shape.entries) {
    return Err(ErrorCode::kConflict, what + " " + std::to_string(key) + " has " + std::to_string(info.max_entries) + " entries of " +
                                         std::to_string(info.value_size) + " bytes instead of " + std::to_string(shape.entries) + " of " +
                                         std::to_string(shape.value_bytes));
  }
  Place place;
  place.outer_ = outer;
  place.key_ = key;
  place.inner_ = std::move(*inner);
  return place;
}

Result<Place> Place::Fill(int outer, const std::string& what, uint32_t key, Fd inner) {
  const int fd = inner.get();
  if (auto ok = UpdateMap(outer, what, key, &fd); !ok) return tl::make_unexpected(ok.error());
  Place place;
  place.outer_ = outer;
  place.key_ = key;
  place.inner_ = std::move(inner);
  return place;
}

Place::Place(Place&& other) noexcept
    : outer_(std::exchange(other.outer_, -1)), key_(other.key_), inner_(std::move(other.inner_)) {}

Place& Place::operator=(Place&& other) noexcept {
  std::swap(outer_, other.outer_);
  std::swap(key_, other.key_);
  std::swap(inner_, other.inner_);
  return *this;
}

Place::~Place() {
  if (outer_ >= 0) bpf_map_delete_elem(outer_, &key_);
}

Result<void> Place::Swap(const std::string& what, Fd inner) {
  const int fd = inner.get();
  if (auto ok = UpdateMap(outer_, what, key_, &fd); !ok) return ok;
  inner_ = std::move(inner);
  return {};
}

}  // namespace mlnet::datapath
