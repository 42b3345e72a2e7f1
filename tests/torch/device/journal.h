// SPDX-License-Identifier: Apache-2.0
// What happened on the test device, in order.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace mlnet::test_device {

/// Written when it begins.
struct Entry {
  std::string what;    // "to_host", "to_device", "on_device"; "record", "block", "synchronize"
  int64_t bytes = 0;   // of a copy
  int64_t number = 0;  // of a copy: offset in the device's allocation, in bytes; else: which event
  int64_t stream = 0;  // the current one of the thread, or the one that is blocked
};

class Journal {
 public:
  void Add(Entry entry);
  std::vector<Entry> All();
  void Clear();
  /// Waits until there are `count` entries of that kind; false if that took longer.
  bool WaitFor(const std::string& what, size_t count, std::chrono::milliseconds timeout);
  /// The copy to the host that comes after `copies` more throws; -1: none does.
  void FailAfter(int64_t copies);
  /// Throws if it is the turn of this copy.
  void CopyToHost();

 private:
  size_t CountOf(const std::string& what) const;

  std::mutex mutex_;  // protects the members below
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  int64_t copies_until_failure_ = -1;
};

/// Of this process.
Journal& TheJournal();

}  // namespace mlnet::test_device
