// SPDX-License-Identifier: Apache-2.0
// Which interfaces a user means, in the grammar of NCCL_SOCKET_IFNAME, which people have in their scripts:
//   eth,ib        names that begin with eth or ib
//   =eth0,eth1    these names exactly
//   ^docker,lo    all but the names that begin with docker or lo
//   ^=docker0     all but this name
// `^` and `=` hold for the whole list. NCCL takes them silently as part of a name where they come later, which then
// matches nothing; here `=eth0,=eth1` means what it says and anything else is refused.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "mlnet/error.h"

namespace mlnet {

class IfnameList {
 public:
  static Result<IfnameList> Parse(std::string_view text);

  bool Matches(std::string_view name) const {
    const bool is_listed = std::any_of(names_.begin(), names_.end(), [&](const std::string& listed) {
      return is_exact_ ? name == listed : name.starts_with(listed);
    });
    return is_listed != is_excluding_;
  }

 private:
  bool is_excluding_ = false;
  bool is_exact_ = false;
  std::vector<std::string> names_;
};

inline Result<IfnameList> IfnameList::Parse(std::string_view text) {
  const auto refuse = [text](const std::string& why) {
    return Err(ErrorCode::kInvalidArgument, "'" + std::string(text) + "' names no interfaces: " + why,
               "as in NCCL_SOCKET_IFNAME: eth,ib (prefixes), =eth0,eth1 (names), ^docker,lo (all but), ^=docker0");
  };
  constexpr size_t kNameMax = 15;
  IfnameList list;
  std::string_view rest = text;
  if ((list.is_excluding_ = rest.starts_with('^'))) rest.remove_prefix(1);
  if ((list.is_exact_ = rest.starts_with('='))) rest.remove_prefix(1);
  for (;;) {
    const size_t comma = rest.find(',');
    std::string_view name = rest.substr(0, comma);
    if (list.is_exact_ && !list.names_.empty() && name.starts_with('=')) name.remove_prefix(1);
    if (name.empty()) return refuse("one of them is empty");
    if (name.find_first_of("^=") != std::string_view::npos) return refuse("^ and = come first and hold for all of them");
    if (name.size() > kNameMax || name.find_first_of(" \t\n/:") != std::string_view::npos) {
      return refuse("no interface can be called '" + std::string(name) + "'");
    }
    list.names_.emplace_back(name);
    if (comma == std::string_view::npos) return list;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace mlnet
