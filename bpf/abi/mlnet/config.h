/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Load-time constants of the XDP programs (.rodata), set by mlnetd before it loads them. */
#ifndef MLNET_ABI_CONFIG_H
#define MLNET_ABI_CONFIG_H

#include "port.h"

struct mlnet_cfg {
	__u16 port_be; /* UDP destination port of the data path, network order */
	__u16 pad;
	__u32 lag_mask; /* arrival lag is taken where (seq & lag_mask) == 0 */
};

#endif /* MLNET_ABI_CONFIG_H */
