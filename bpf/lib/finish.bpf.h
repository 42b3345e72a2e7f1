/* SPDX-License-Identifier: GPL-2.0-only */
/* Last stage of the packet path: count the verdict, return its XDP action. */
#ifndef MLNET_LIB_FINISH_BPF_H
#define MLNET_LIB_FINISH_BPF_H

#include "parse.bpf.h"

static const __u8 verdict_actions[MLNET_VERDICTS_MAX] = {
#define MLNET_X(name, action, help) [MLNET_V_##name] = action,
	MLNET_VERDICTS(MLNET_X)
#undef MLNET_X
};

static __always_inline int finish(const struct pkt *p, enum mlnet_verdict verdict, void *stats_map)
{
	__u32 stats_id = p->node_stats_id, index = verdict;
	struct mlnet_stats *stats;

	if (index >= MLNET_VERDICTS_MAX)
		return XDP_ABORTED;
	stats = bpf_map_lookup_elem(stats_map, &stats_id);
	if (!stats)
		return XDP_ABORTED;
	stats->verdicts[index]++;
	if (index != MLNET_V_PASS_NOT_OURS)
		stats->bytes_in += p->frame_bytes;
	if ((index >= MLNET_V_SUM_FIRST && index <= MLNET_V_SUM_COMPLETE_UNSENT) ||
	    index == MLNET_V_SUM_COMPLETE_LOCAL || index == MLNET_V_PARTIAL_TX || index == MLNET_V_PARTIAL_REDIRECT ||
	    index == MLNET_V_SUM_TO_SERVER) {
		stats->contributions++;
		if (!(p->flags & MLNET_F_NO_DATA))
			stats->words_summed += p->blocks * MLNET_BLOCK_WORDS;
	}
	if (index == MLNET_V_SUM_COMPLETE_TX || index == MLNET_V_SUM_COMPLETE_FAN ||
	    index == MLNET_V_SUM_SENT_LATE || index == MLNET_V_SUM_SENT_LATE_FAN ||
	    index == MLNET_V_SUM_COMPLETE_LOCAL || index == MLNET_V_SUM_SENT_LATE_LOCAL || index == MLNET_V_ANSWER_SENT)
		stats->results++;
	return verdict_actions[index];
}

#endif /* MLNET_LIB_FINISH_BPF_H */
