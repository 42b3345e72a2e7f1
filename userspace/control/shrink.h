// SPDX-License-Identifier: Apache-2.0
// How a job that has failed goes on with those of its ranks that are left: pure functions over its records, each one transaction.
//
//   failed --a rank asks--> failed, waits for the other candidates --all have asked, or those who have not were given up-->
//   a new incarnation with a new epoch, of the ranks that asked, numbered anew in their order
//
// A candidate is a rank that is still connected and that the failure does not call lost. The record of the failed incarnation is where
// all daemons agree: who is in the new one and who is not is decided once, by the transaction that opens it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "control/model.h"
#include "mlnet/error.h"

namespace mlnet::control {

/// Why `rank` of the failed job cannot go on with the others: it was called lost, or given up.
Result<void> CheckGoesOn(const JobView& view, int rank);
/// `rank` asks to go on. REQUIRES: CheckGoesOn.
void GoOn(JobView& view, int rank);
/// Candidates that have not asked within `waited_ms` count as lost from here on.
void GiveUpMissing(JobView& view, uint64_t waited_ms);
/// Whether all candidates have asked.
bool CanShrink(const JobView& view);
/// Opens the new incarnation; it is full. REQUIRES: CanShrink.
void Shrink(JobView& view, uint64_t now_ms);

/// What became of `rank` of the incarnation that `view` goes on from; null: it goes on without it.
const MemberRecord* Successor(const JobView& view, uint64_t incarnation, int rank);
/// For a rank that the job goes on without.
Error LeftBehind(const JobView& view, int rank);
/// The ranks before, by rank.
std::vector<int> FormerRanks(const JobView& view);
/// The same over two steps: `before`, by rank of the incarnation before, says what each was called earlier; empty: as that. None: the two
/// do not belong together.
std::optional<std::vector<int>> EarlierRanks(const JobView& view, const std::vector<int>& before);

}  // namespace mlnet::control
