// SPDX-License-Identifier: Apache-2.0
#include "datapath/events.h"

#include <bpf/libbpf.h>

#include <cerrno>
#include <cstring>

#include "base/errno_error.h"

namespace mlnet::datapath {
namespace {

int OnRecord(void* context, void* data, size_t bytes) {
  mlnet_event event;
  if (bytes < sizeof(event)) return 0;
  std::memcpy(&event, data, sizeof(event));
  (*static_cast<EventReader::Handler*>(context))(event);
  return 0;
}

}  // namespace

void EventReader::Free::operator()(ring_buffer* ring) const { ring_buffer__free(ring); }

Result<EventReader> EventReader::Open(const Program& program, Handler handler) {
  EventReader reader;
  reader.handler_ = std::make_unique<Handler>(std::move(handler));
  reader.ring_.reset(ring_buffer__new(program.MapFd("ml_events"), OnRecord, reader.handler_.get(), nullptr));
  if (!reader.ring_) return tl::make_unexpected(ErrnoError("open ml_events", errno));
  return reader;
}

int EventReader::poll_fd() const { return ring_buffer__epoll_fd(ring_.get()); }

void EventReader::Dispatch() { ring_buffer__consume(ring_.get()); }

}  // namespace mlnet::datapath
