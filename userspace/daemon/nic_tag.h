// SPDX-License-Identifier: Apache-2.0
// The tc program on one of this host's interfaces, and the note that it is there.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "daemon/nic_state.h"
#include "datapath/tagger.h"

namespace mlnet::daemon {

inline constexpr const char* kClsactSection = "clsact";

class NicTag {
 public:
  static Result<std::unique_ptr<NicTag>> Attach(const datapath::Tagger& tagger, NicState& state, const std::string& iface,
                                                const std::string& how, const std::string& pin);
  NicTag(const NicTag&) = delete;
  NicTag& operator=(const NicTag&) = delete;
  ~NicTag();

  const char* via() const { return attachment_.via(); }
  bool IsAlive() const { return attachment_.IsAlive(); }

 private:
  NicTag(NicState& state, std::string iface, datapath::TagAttachment attachment)
      : state_(state), iface_(std::move(iface)), attachment_(std::move(attachment)) {}

  NicState& state_;
  std::string iface_;
  datapath::TagAttachment attachment_;
};

/// Takes away the filters that an earlier daemon left, but on `kept` interfaces.
void UndoTags(NicState& state, const std::set<std::string>& kept = {});

}  // namespace mlnet::daemon
