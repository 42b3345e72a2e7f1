/* SPDX-License-Identifier: GPL-2.0-only */
/* The XDP programs as they are, compiled for the host, and what kernel.cc must know of them. */
#include "aggregate/xdp_aggregate.bpf.c"

#include "program.h"

#define MAP(name) { #name, &name }

const struct program_map program_maps[] = {
	MAP(ml_jobs), MAP(ml_slots), MAP(ml_words), MAP(ml_inboxes),   MAP(ml_wakes),  MAP(ml_rings),	  MAP(ml_fans),
	MAP(ml_links), MAP(ml_stats), MAP(ml_keys), MAP(ml_fan_state), MAP(ml_events), MAP(ml_mac_state), { 0, 0 },
};

int (*program_at(__u32 index))(struct xdp_md *)
{
	return index < PROGRAMS ? ml_programs.values[index] : 0;
}
