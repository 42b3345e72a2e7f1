// SPDX-License-Identifier: Apache-2.0
#include "journal.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace mlnet::test_device {

void Journal::Add(Entry entry) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_back(std::move(entry));
  }
  changed_.notify_all();
}

std::vector<Entry> Journal::All() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return entries_;
}

void Journal::Clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_.clear();
}

bool Journal::WaitFor(const std::string& what, size_t count, std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return CountOf(what) >= count; });
}

void Journal::FailAfter(int64_t copies) {
  const std::lock_guard<std::mutex> lock(mutex_);
  copies_until_failure_ = copies;
}

void Journal::CopyToHost() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (copies_until_failure_ < 0) return;
  if (copies_until_failure_-- == 0) throw std::runtime_error("the test device was told to fail here");
}

size_t Journal::CountOf(const std::string& what) const {
  return static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(),
                                           [&](const Entry& entry) { return entry.what == what; }));
}

Journal& TheJournal() {
  static Journal journal;
  return journal;
}

}  // namespace mlnet::test_device
