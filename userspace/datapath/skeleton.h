// SPDX-License-Identifier: Apache-2.0
// The generated skeletons with the types that they name. Only this folder's .cc files include it.
#pragma once

#include "mlnet/config.h"
#include "mlnet/event.h"
#include "mlnet/job.h"
#include "xdp_aggregate.skel.h"
#include "xdp_dispatched.skel.h"
