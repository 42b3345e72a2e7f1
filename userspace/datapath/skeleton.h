// SPDX-License-Identifier: Apache-2.0
// The generated skeleton with the types that it names. Only this folder's .cc files include it.
#pragma once

#include "mlnet/config.h"
#include "mlnet/event.h"
#include "mlnet/job.h"
#include "xdp_aggregate.skel.h"
