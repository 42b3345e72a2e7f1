// SPDX-License-Identifier: Apache-2.0
// What this daemon has set on interfaces that does not go with its process, in a file: the next daemon of this instance
// undoes what a killed one left. By section and interface; forgotten after a reboot, as the interfaces' settings are.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "control/model.h"

namespace mlnet::daemon {

class NicState {
 public:
  /// <folder>/<instance>.nics.json
  NicState(const std::string& folder, const std::string& instance);

  /// Takes the section's entries out of the file, but those of `kept` interfaces, and gives each to `undo`.
  void UndoAll(const char* section, const std::set<std::string>& kept, const std::function<void(const std::string& iface, const control::Json& entry)>& undo);

  Result<void> Remember(const char* section, const std::string& iface, control::Json entry);
  void Forget(const char* section, const std::string& iface);
  /// By interface.
  control::Json All(const char* section) const { return content_.value(section, control::Json::object()); }
  /// Null where there is none.
  control::Json Find(const char* section, const std::string& iface) const;

 private:
  Result<void> Save() const;

  std::string path_;
  control::Json content_;
};

}  // namespace mlnet::daemon
