/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The maps of <mlnet/job.h>, ml_jobs apart; who writes and who reads each is said there. Inner maps give sizes: see
 * lib/jobs.bpf.h.
 */
#ifndef MLNET_AGGREGATE_MAPS_BPF_H
#define MLNET_AGGREGATE_MAPS_BPF_H

#include <bpf/bpf_helpers.h>
#include <mlnet/event.h>
#include <mlnet/job.h>

#include "../lib/jobs.bpf.h"

/* Metadata only: inner maps may not hold a spin lock before kernel 6.2, so the locks live here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MLNET_SLOTS_MAX);
	__type(key, __u32);
	__type(value, struct mlnet_slot);
} ml_slots SEC(".maps");

/* Mappable because that aligns the words to pages, and so to cache lines. */
struct ml_words_inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct mlnet_words));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MLNET_WORDS_MAPS_MAX);
	__type(key, __u32);
	__array(values, struct ml_words_inner);
} ml_words SEC(".maps");

struct ml_inbox_inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct mlnet_cell));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MLNET_INBOXES_MAX);
	__type(key, __u32);
	__array(values, struct ml_inbox_inner);
} ml_inboxes SEC(".maps");

struct ml_wake_inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct mlnet_wake));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MLNET_INBOXES_MAX);
	__type(key, __u32);
	__array(values, struct ml_wake_inner);
} ml_wakes SEC(".maps");

struct ml_ring_inner {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, MLNET_NOTICE_RING_BYTES);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MLNET_RINGS_MAX);
	__type(key, __u32);
	__array(values, struct ml_ring_inner);
} ml_rings SEC(".maps");

/* All entries of one fan are the same NIC with ml_egress, which rewrites copy k for host k. */
struct ml_fan_inner {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MLNET_CHILDREN_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MLNET_FANS_MAX);
	__type(key, __u32);
	__array(values, struct ml_fan_inner);
} ml_fans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MLNET_LINKS_MAX);
	__type(key, __u32);
	__type(value, struct mlnet_link);
} ml_links SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MLNET_STATS_MAX);
	__type(key, __u32);
	__type(value, struct mlnet_stats);
} ml_stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct mlnet_fan_state);
} ml_fan_state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} ml_events SEC(".maps");

#endif /* MLNET_AGGREGATE_MAPS_BPF_H */
