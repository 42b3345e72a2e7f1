// SPDX-License-Identifier: Apache-2.0
// Inner maps of the job tables: create one, put it into its place, take it out again. Each has a pin as well: the outer map
// tells the next daemon no more than an id, and to open a map by that takes CAP_SYS_ADMIN.
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

/// A map of maps.
struct OuterMap {
  int fd = -1;
  std::string name;
  std::string pins;  // folder of the pins of the maps in it, by key; empty: they have none

  std::string PinOf(uint32_t key) const { return pins.empty() ? "" : pins + "/" + std::to_string(key); }
};

/// A map whose pin is not in its place yet: it is about to be put where another one is (Place::Swap).
inline constexpr const char* kNextPin = "-next";

/// The map in a place of a map of maps, wherever it was made; kUnavailable: there is none. kPermission: it has no pin, and
/// this process may not open it by its id.
Result<Fd> OpenInner(const OuterMap& outer, uint32_t key);

/// What an inner map must be to be taken over.
struct InnerShape {
  uint32_t value_bytes = 0;
  uint32_t entries = 0;
};

/// An occupied place of a map of maps; emptied when destroyed.
class Place {
 public:
  Place() = default;
  static Result<Place> Fill(const OuterMap& outer, uint32_t key, Fd inner);
  /// The place as it is: filled by a daemon that has ended. kConflict where its map has another shape.
  static Result<Place> TakeOver(const OuterMap& outer, uint32_t key, const InnerShape& shape);
  Place(Place&& other) noexcept;
  Place& operator=(Place&& other) noexcept;
  ~Place();

  /// Another inner map in the same place: readers see the old one or the new one.
  Result<void> Swap(Fd inner);
  int inner_fd() const { return inner_.get(); }

 private:
  OuterMap outer_;   // not owned; fd -1: nothing is in the place
  uint32_t key_ = 0;
  std::string pin_;  // empty: there is none
  Fd inner_;
};

}  // namespace mlnet::datapath
