// SPDX-License-Identifier: Apache-2.0
#include "datapath/inner_map.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
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

// All 0: it cannot be looked at.
bpf_map_info InfoOf(int map) {
  bpf_map_info info{};
  __u32 bytes = sizeof(info);
  return bpf_obj_get_info_by_fd(map, &info, &bytes) == 0 ? info : bpf_map_info{};
}

Result<void> PinBeside(int map, const std::string& pin) {
  if (pin.empty()) return {};
  const std::string next = pin + kNextPin;
  ::unlink(next.c_str());  // of a daemon that ended on the way
  if (bpf_obj_pin(map, next.c_str()) != 0) return tl::make_unexpected(ErrnoError("pin " + next, errno));
  return {};
}

Result<void> ReplacePin(const std::string& pin) {
  if (pin.empty() || ::rename((pin + kNextPin).c_str(), pin.c_str()) == 0) return {};
  return tl::make_unexpected(ErrnoError("rename " + pin + kNextPin, errno));
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

Result<Fd> OpenInner(const OuterMap& outer, uint32_t key) {
  const std::string place = outer.name + " " + std::to_string(key);
  uint32_t id = 0;
  if (bpf_map_lookup_elem(outer.fd, &key, &id) != 0) {
    if (errno == ENOENT) return Err(ErrorCode::kUnavailable, place + " is empty");
    return tl::make_unexpected(ErrnoError("read " + place, errno));
  }
  for (const char* suffix : {"", kNextPin}) {
    if (outer.pins.empty()) break;
    Fd pinned(bpf_obj_get((outer.PinOf(key) + suffix).c_str()));
    if (pinned && InfoOf(pinned.get()).id == id) return pinned;
  }
  Fd inner(bpf_map_get_fd_by_id(id));  // an mlnetd that was older did not pin it
  if (!inner) return tl::make_unexpected(ErrnoError("open " + place, errno, "it has no pin, and opening it by its id takes CAP_SYS_ADMIN"));
  return inner;
}

Result<Place> Place::TakeOver(const OuterMap& outer, uint32_t key, const InnerShape& shape) {
  auto inner = OpenInner(outer, key);
  if (!inner) return tl::make_unexpected(inner.error());
  const bpf_map_info info = InfoOf(inner->get());
  if (info.value_size != shape.value_bytes || info.max_entries != shape.entries) {
    return Err(ErrorCode::kConflict, outer.name + " " + std::to_string(key) + " has " + std::to_string(info.max_entries) + " entries of " +
                                         std::to_string(info.value_size) + " bytes instead of " + std::to_string(shape.entries) + " of " +
                                         std::to_string(shape.value_bytes));
  }
  if (auto ok = PinBeside(inner->get(), outer.PinOf(key)); !ok) return tl::make_unexpected(ok.error());
  if (auto ok = ReplacePin(outer.PinOf(key)); !ok) return tl::make_unexpected(ok.error());
  Place place;
  place.outer_ = outer;
  place.key_ = key;
  place.pin_ = outer.PinOf(key);
  place.inner_ = std::move(*inner);
  return place;
}

Result<Place> Place::Fill(const OuterMap& outer, uint32_t key, Fd inner) {
  Place place;
  place.pin_ = outer.PinOf(key);
  if (auto ok = PinBeside(inner.get(), place.pin_); !ok) return tl::make_unexpected(ok.error());
  if (auto ok = ReplacePin(place.pin_); !ok) return tl::make_unexpected(ok.error());
  const int fd = inner.get();
  if (auto ok = UpdateMap(outer.fd, outer.name, key, &fd); !ok) return tl::make_unexpected(ok.error());
  place.outer_ = outer;
  place.key_ = key;
  place.inner_ = std::move(inner);
  return place;
}

Place::Place(Place&& other) noexcept { *this = std::move(other); }

Place& Place::operator=(Place&& other) noexcept {
  std::swap(outer_, other.outer_);
  std::swap(key_, other.key_);
  std::swap(pin_, other.pin_);
  std::swap(inner_, other.inner_);
  return *this;
}

Place::~Place() {
  if (outer_.fd >= 0) bpf_map_delete_elem(outer_.fd, &key_);
  if (!pin_.empty()) ::unlink(pin_.c_str());
}

// Whenever a daemon ends on the way, the map that is in the place has a pin.
Result<void> Place::Swap(Fd inner) {
  const int fd = inner.get();
  if (auto ok = PinBeside(fd, pin_); !ok) return ok;
  if (auto ok = UpdateMap(outer_.fd, outer_.name, key_, &fd); !ok) return ok;
  inner_ = std::move(inner);
  return ReplacePin(pin_);
}

}  // namespace mlnet::datapath
