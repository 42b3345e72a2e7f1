// SPDX-License-Identifier: Apache-2.0
// What an earlier daemon left in the outer maps and that no job which was taken over names.
#pragma once

#include <cstdint>
#include <set>

#include "datapath/program.h"

namespace mlnet::datapath {

/// Keys that are in use, by map.
struct KeysInUse {
  std::set<uint32_t> keys;  // of epochs
  std::set<uint32_t> jobs, words, inboxes, rings, fans;  // a wake map has its inbox's key
};

/// Empties all other places, table entries first: no packet uses what is freed after them. How many there were.
size_t RemoveOthers(const Program& program, const KeysInUse& in_use);

}  // namespace mlnet::datapath
