/* SPDX-License-Identifier: GPL-2.0-only */
/* The job table, which the XDP programs and the tc program read. */
#ifndef MLNET_LIB_JOBS_BPF_H
#define MLNET_LIB_JOBS_BPF_H

#include <bpf/bpf_helpers.h>
#include <mlnet/job.h>

#include "bytes.bpf.h"

/*
 * Inner maps give sizes instead of types: clang leaves a type that only they name incomplete in BTF.
 */

/* By tree; replaced whole, so that a packet sees either the old job or the new one. */
struct ml_job_inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MLNET_TREES_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct mlnet_node));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MLNET_JOBS_MAX);
	__type(key, __u32);
	__array(values, struct ml_job_inner);
} ml_jobs SEC(".maps");

static __always_inline struct mlnet_node *node_find(__u32 job, __u32 tree)
{
	void *inner = bpf_map_lookup_elem(&ml_jobs, &job);

	return inner ? bpf_map_lookup_elem(inner, &tree) : NULL;
}

/* What packets of the class leave with. */
static __always_inline const struct mlnet_mark *node_mark(const struct mlnet_node *node, __u8 class_stream)
{
	return &node->marks[masked(class_stream, MLNET_CLASSES_MAX - 1)];
}

#endif /* MLNET_LIB_JOBS_BPF_H */
