// SPDX-License-Identifier: Apache-2.0
// htb's hysteresis, a parameter of the whole kernel that the lab borrows: with it a shaper that has run dry waits
// until its burst is paid for, instead of arming a timer for every packet. On a virtual machine each timer is an
// exit to the hypervisor; without hysteresis they cost a quarter of the time of a link-limited all-reduce.
#pragma once

namespace mlnet::lab {

/// Switches it on and remembers the value that was there. No error where the kernel does not have it: links
/// then only cost more CPU. Call it after the first htb exists (the module brings the parameter).
void BorrowHysteresis();

/// Puts the old value back once no lab is left.
void ReturnHysteresis();

}  // namespace mlnet::lab
