// SPDX-License-Identifier: Apache-2.0
// Inner maps of the job tables: create one, put it into its place, take it out again.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "mlnet/error.h"

namespace mlnet::datapath {

Result<Fd> CreateArray(const char* name, uint32_t value_bytes, uint32_t entries, bool mappable, bool any_size);
Result<Fd> CreateRing(const char* name, uint32_t bytes);
Result<Fd> CreateDevmap(const char* name, uint32_t entries);

Result<void> UpdateMap(int map, const std::string& what, uint32_t key, const void* value);

/// The map in a place of a map of maps, wherever it was made; kUnavailable: there is none.
Result<Fd> OpenInner(int outer, const std::string& what, uint32_t key);

/// What an inner map must be to be taken over.
struct InnerShape {
  uint32_t value_bytes = 0;
  uint32_t entries = 0;
};

/// An occupied place of a map of maps; emptied when destroyed.
class Place {
 public:
  Place() = default;
  static Result<Place> Fill(int outer, const std::string& what, uint32_t key, Fd inner);
  /// The place as it is: filled by a daemon that has ended. kConflict where its map has another shape.
  static Result<Place> TakeOver(int outer, const std::string& what, uint32_t key, const InnerShape& shape);
  Place(Place&& other) noexcept;
  Place& operator=(Place&& other) noexcept;
  ~Place();

  /// Another inner map in the same place: readers see the old one or the new one.
  Result<void> Swap(const std::string& what, Fd inner);
  int inner_fd() const { return inner_.get(); }

 private:
  int outer_ = -1;  // not owned
  uint32_t key_ = 0;
  Fd inner_;
};

}  // namespace mlnet::datapath
