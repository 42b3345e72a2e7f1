// SPDX-License-Identifier: Apache-2.0
#include "transport/inbox.h"

#include <unistd.h>

#include "transport/map_info.h"

namespace mlnet::worker {

Result<Inbox> Inbox::Open(int inbox_fd, int wake_fd, int ring_fd, unsigned local_index) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  auto num_cells = MapMaxEntries(inbox_fd);
  if (!num_cells) return tl::make_unexpected(num_cells.error());
  const size_t bytes = (*num_cells * sizeof(mlnet_cell) + page - 1) / page * page;
  auto cells = Mapping::Map("inbox", inbox_fd, bytes, PROT_READ);
  if (!cells) return tl::make_unexpected(cells.error());
  auto wake = Mapping::Map("sleep flags", wake_fd, page, PROT_READ | PROT_WRITE);
  if (!wake) return tl::make_unexpected(wake.error());
  auto ring = NoticeRing::Open(ring_fd);
  if (!ring) return tl::make_unexpected(ring.error());
  Inbox inbox;
  inbox.cells_ = std::move(*cells);
  inbox.num_cells_ = *num_cells;
  inbox.wake_ = std::move(*wake);
  inbox.ring_ = std::move(*ring);
  inbox.bit_ = 1ULL << local_index;
  return inbox;
}

}  // namespace mlnet::worker
