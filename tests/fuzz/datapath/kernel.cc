// SPDX-License-Identifier: Apache-2.0
#include "fuzz/datapath/kernel.h"

#include <setjmp.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "fuzz/datapath/program.h"
#include "fuzz/require.h"

#ifdef MLNET_FUZZ_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

namespace mlnet::fuzz {
namespace {

constexpr size_t kHeadroom = 256;     // XDP_PACKET_HEADROOM
constexpr size_t kTailroom = 64;
constexpr long kMetaBytesMax = 32;    // what kernels before 6.11 take
constexpr int kEthernetBytes = 14;
constexpr size_t kRecordsMax = 64;    // then a ring is full

jmp_buf end_of_run;
int action_of_run = 0;

}  // namespace

Map::Map(uint32_t bytes, uint32_t entries) : value_bytes(bytes) {
  for (uint32_t i = 0; i < entries; ++i) values.emplace_back(new uint8_t[bytes]());
}

void* Map::At(uint32_t key) {
  if (key < values.size()) return values[key].get();
  const auto found = by_key.find(key);
  return found == by_key.end() ? nullptr : found->second.get();
}

void* Map::Put(uint32_t key) {
  auto& value = by_key[key];
  if (!value) value.reset(new uint8_t[value_bytes]());
  return value.get();
}

Kernel& Kernel::Get() {
  static Kernel kernel;
  return kernel;
}

Map& Kernel::Make(const std::string& name, uint32_t value_bytes, uint32_t entries) {
  auto& map = maps_[name] = std::make_unique<Map>(value_bytes, entries);
  for (const program_map* at = program_maps; at->name != nullptr; ++at) {
    if (at->name == name) by_symbol_[at->symbol] = map.get();
  }
  return *map;
}

Map* Kernel::Find(const void* map) {
  RequireUnlocked();
  const auto outer = by_symbol_.find(map);
  return outer != by_symbol_.end() ? outer->second : static_cast<Map*>(const_cast<void*>(map));
}

Ran Kernel::Run(int (*program)(xdp_md*), std::span<const uint8_t> frame, std::span<const uint8_t> meta) {
  if (memory_.size() < kHeadroom + frame.size() + kTailroom) memory_.resize(kHeadroom + frame.size() + kTailroom);
  if (!frame.empty()) std::memcpy(&memory_[kHeadroom], frame.data(), frame.size());
  if (!meta.empty()) std::memcpy(&memory_[kHeadroom - meta.size()], meta.data(), meta.size());
  ASAN_POISON_MEMORY_REGION(memory_.data(), memory_.size());
  ASAN_UNPOISON_MEMORY_REGION(&memory_[kHeadroom - meta.size()], meta.size() + frame.size());
  const auto data = reinterpret_cast<unsigned long>(&memory_[kHeadroom]);
  static xdp_md ctx;  // not a local: it is read behind a longjmp
  ctx = {data, data + frame.size(), data - meta.size()};
  redirect_ = nullptr;
  if (setjmp(end_of_run) == 0) action_of_run = program(&ctx);
  RequireUnlocked();
  const auto end = reinterpret_cast<uint8_t*>(ctx.data_end), begin = reinterpret_cast<uint8_t*>(ctx.data);
  const auto meta_begin = reinterpret_cast<uint8_t*>(ctx.data_meta);
  Ran ran{action_of_run, Bytes(begin, end), Bytes(meta_begin, begin), redirect_, redirect_flags_};
  ASAN_UNPOISON_MEMORY_REGION(memory_.data(), memory_.size());
  return ran;
}

int Kernel::TailCall(xdp_md* ctx, uint32_t index) {
  RequireUnlocked();
  const auto program = program_at(index);
  if (program == nullptr) return -ENOENT;
  if (program == ml_mac_check && before_mac_check) std::exchange(before_mac_check, {})();
  action_of_run = program(ctx);
  longjmp(end_of_run, 1);
}

long Kernel::AdjustMeta(xdp_md* ctx, int delta) {
  RequireUnlocked();
  if (!has_meta) return -ENOTSUP;
  const long bytes = static_cast<long>(ctx->data - ctx->data_meta) - delta;
  if (bytes < 0 || bytes > kMetaBytesMax || bytes % 4 != 0) return -EINVAL;
  ctx->data_meta = ctx->data - static_cast<unsigned long>(bytes);
  ASAN_POISON_MEMORY_REGION(memory_.data(), kHeadroom);
  ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<uint8_t*>(ctx->data_meta), static_cast<size_t>(bytes));
  return 0;
}

long Kernel::AdjustTail(xdp_md* ctx, int delta) {
  RequireUnlocked();
  REQUIRE(delta < 0);  // drivers differ in what they let a frame grow by
  const long bytes = static_cast<long>(ctx->data_end - ctx->data) + delta;
  if (bytes < kEthernetBytes) return -EINVAL;
  ctx->data_end = ctx->data + static_cast<unsigned long>(bytes);
  ASAN_POISON_MEMORY_REGION(reinterpret_cast<uint8_t*>(ctx->data_end), static_cast<size_t>(-delta));
  return 0;
}

void Kernel::Lock(const void* lock) {
  RequireUnlocked();
  lock_ = lock;
}

void Kernel::Unlock(const void* lock) {
  REQUIRE(lock_ == lock);
  lock_ = nullptr;
}

void Kernel::NoteRedirect(const Map* fan, uint64_t flags) {
  RequireUnlocked();
  redirect_ = fan;
  redirect_flags_ = flags;
}

void Kernel::RequireUnlocked() const { REQUIRE(lock_ == nullptr); }

namespace {

bool Output(Map* ring, const void* record, size_t bytes) {
  if (ring->is_full || ring->records.size() >= kRecordsMax) return false;
  const auto* begin = static_cast<const uint8_t*>(record);
  ring->records.emplace_back(begin, begin + bytes);
  return true;
}

// The one record that is being written.
struct Reserved {
  Map* ring = nullptr;
  std::unique_ptr<uint8_t[]> bytes;
  size_t size = 0;
};

Reserved& OfRing() {
  static Reserved reserved;
  return reserved;
}

}  // namespace
}  // namespace mlnet::fuzz

// libbpf's names, for program.c.
extern "C" {

using mlnet::fuzz::Kernel;
using mlnet::fuzz::Map;

void* bpf_map_lookup_elem(void* map, const void* key) {
  uint32_t index;
  std::memcpy(&index, key, sizeof(index));
  Map* found = Kernel::Get().Find(map);
  if (found->inner.empty()) {
    void* value = found->At(index);
    if (value != nullptr) Kernel::Get().looked_up.push_back({found, index});
    return value;
  }
  const auto inner = found->inner.find(index);
  return inner == found->inner.end() ? nullptr : inner->second.get();
}

void host_spin_lock(struct bpf_spin_lock* lock) { Kernel::Get().Lock(lock); }
void bpf_spin_unlock(struct bpf_spin_lock* lock) { Kernel::Get().Unlock(lock); }

uint64_t bpf_ktime_get_ns() {
  Kernel::Get().RequireUnlocked();
  return Kernel::Get().now_ns;
}

void* bpf_ringbuf_reserve(void* ring, uint64_t size, uint64_t) {
  Map* found = Kernel::Get().Find(ring);
  if (found->is_full) return nullptr;
  mlnet::fuzz::OfRing() = {found, std::unique_ptr<uint8_t[]>(new uint8_t[size]()), size};
  return mlnet::fuzz::OfRing().bytes.get();
}

void bpf_ringbuf_submit(void* record, uint64_t) {
  auto& reserved = mlnet::fuzz::OfRing();
  REQUIRE(record != nullptr && record == reserved.bytes.get());
  mlnet::fuzz::Output(reserved.ring, record, reserved.size);
  reserved.bytes.reset();
}

long bpf_ringbuf_output(void* ring, void* record, uint64_t size, uint64_t) {
  return mlnet::fuzz::Output(Kernel::Get().Find(ring), record, size) ? 0 : -EAGAIN;
}

long bpf_redirect_map(void* map, uint64_t key, uint64_t flags) {
  Map* fan = Kernel::Get().Find(map);
  REQUIRE(fan->At(static_cast<uint32_t>(key)) != nullptr);
  Kernel::Get().NoteRedirect(fan, flags);
  return XDP_REDIRECT;
}

long bpf_xdp_adjust_meta(xdp_md* ctx, int delta) { return Kernel::Get().AdjustMeta(ctx, delta); }
long bpf_xdp_adjust_tail(xdp_md* ctx, int delta) { return Kernel::Get().AdjustTail(ctx, delta); }
long bpf_tail_call(void* ctx, void*, uint32_t index) { return Kernel::Get().TailCall(static_cast<xdp_md*>(ctx), index); }
}
