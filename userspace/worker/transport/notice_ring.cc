// SPDX-License-Identifier: Apache-2.0
#include "transport/notice_ring.h"

#include <linux/bpf.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "transport/map_info.h"

namespace mlnet::worker {
namespace {

constexpr size_t kRecordHeaderBytes = BPF_RINGBUF_HDR_SZ;
constexpr size_t kRecordAlignment = 8;

}  // namespace

Result<NoticeRing> NoticeRing::Open(int fd) {
  auto data_bytes = MapMaxEntries(fd);
  if (!data_bytes) return tl::make_unexpected(data_bytes.error());
  NoticeRing ring;
  ring.page_bytes_ = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  ring.data_bytes_ = *data_bytes;
  auto consumer = Mapping::Map("notice ring's position", fd, ring.page_bytes_, PROT_READ | PROT_WRITE);
  if (!consumer) return tl::make_unexpected(consumer.error());
  auto producer =
      Mapping::Map("notice ring", fd, ring.page_bytes_ + 2 * ring.data_bytes_, PROT_READ, ring.page_bytes_);
  if (!producer) return tl::make_unexpected(producer.error());
  ring.consumer_ = std::move(*consumer);
  ring.producer_ = std::move(*producer);
  return ring;
}

bool NoticeRing::Next(mlnet_notice& notice) {
  auto* consumed = consumer_.As<uint64_t>();
  const uint64_t produced = __atomic_load_n(producer_.As<uint64_t>(), __ATOMIC_ACQUIRE);
  uint64_t position = *consumed;
  bool has_record = false;
  while (!has_record && position < produced) {
    const auto* record = producer_.As<std::byte>(page_bytes_ + (position & (data_bytes_ - 1)));
    const uint32_t header = __atomic_load_n(reinterpret_cast<const uint32_t*>(record), __ATOMIC_ACQUIRE);
    if (header & BPF_RINGBUF_BUSY_BIT) break;  // reserved, not written yet
    const size_t bytes = header & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
    if (!(header & BPF_RINGBUF_DISCARD_BIT)) {
      notice = {};
      std::memcpy(&notice, record + kRecordHeaderBytes, std::min(bytes, sizeof(notice)));
      has_record = true;
    }
    position += (bytes + kRecordHeaderBytes + kRecordAlignment - 1) & ~(kRecordAlignment - 1);
    __atomic_store_n(consumed, position, __ATOMIC_RELEASE);
  }
  return has_record;
}

}  // namespace mlnet::worker
