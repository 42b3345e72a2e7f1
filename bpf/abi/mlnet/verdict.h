/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Every packet ends in exactly one verdict. This table is the only list of them: enum, XDP action,
 * counter index and the text that mlnetctl prints all come from it. Append only: the number is the
 * counter's index in pinned maps.
 */
#ifndef MLNET_ABI_VERDICT_H
#define MLNET_ABI_VERDICT_H

#include "port.h"

/* X(name, XDP action, help) */
#define MLNET_VERDICTS(X) \
	X(UNDECIDED, XDP_ABORTED, "no stage decided; seeing this is a bug") \
	X(PASS_NOT_OURS, XDP_PASS, "not an mlnet packet; left to the kernel") \
	X(DROP_MALFORMED, XDP_DROP, "lengths or reserved bits contradict the format") \
	X(DROP_VERSION, XDP_DROP, "another protocol version; upgrade the older side") \
	X(DROP_FRAGMENT, XDP_DROP, "IP fragment or frame in several buffers; lower the packet size or the MTU") \
	X(DROP_UNKNOWN_JOB, XDP_DROP, "no such job on this host") \
	X(DROP_EPOCH, XDP_DROP, "epoch of an older or newer membership") \
	X(DROP_NOT_MEMBER, XDP_DROP, "child or source address does not belong to the job") \
	X(DROP_NO_POOL, XDP_DROP, "tree, class or stream without a slot pool") \
	X(DROP_CORRUPT, XDP_DROP, "check word wrong: damaged on the way, as good as lost") \
	X(DROP_STALE, XDP_DROP, "older than the shadow copy; nobody can still need it") \
	X(SUM_FIRST, XDP_DROP, "first contribution of a set: copied") \
	X(SUM_ADD, XDP_DROP, "contribution added") \
	X(SUM_COMPLETE_TX, XDP_TX, "last contribution: the packet left as the result") \
	X(SUM_COMPLETE_FAN, XDP_REDIRECT, "last contribution: the result left as one copy per host") \
	X(SUM_COMPLETE_UNSENT, XDP_TX, "last contribution without room for the sum: RESEND asked for") \
	X(SUM_SENT_LATE, XDP_TX, "a full-length packet carried a waiting result on") \
	X(SUM_SENT_LATE_FAN, XDP_REDIRECT, "as above, one copy per host") \
	X(RESEND_RESULT, XDP_TX, "duplicate of a complete set: answered from the copy") \
	X(HELD, XDP_TX, "duplicate of an incomplete set: answered with the missing children") \
	X(BUSY, XDP_TX, "set still serves an older seq") \
	X(MISMATCH, XDP_TX, "collective differs from what the slot holds") \
	X(ASK_RESEND, XDP_TX, "header-only packet cannot carry the result: RESEND asked for") \
	X(DELIVERED, XDP_DROP, "result written to the inbox") \
	X(DROP_RESULT_OLD, XDP_DROP, "result that the inbox already holds, or newer") \
	X(DROP_NOT_PARENT, XDP_DROP, "result, reply or answer from a source that is not this job's aggregator or server") \
	X(NOTICE, XDP_DROP, "reply handed to the rank it is meant for") \
	X(NOTICE_LOST, XDP_DROP, "reply dropped: the rank's notice ring is full") \
	X(PONG, XDP_TX, "PING answered") \
	X(PING_SEEN, XDP_DROP, "a root's multicast PING (reported to the daemon)") \
	X(DROP_UNSUPPORTED, XDP_DROP, "packet type or operation that this build does not handle") \
	X(SUM_COMPLETE_LOCAL, XDP_DROP, "last contribution: all ranks are on this host, the result is in their inbox") \
	X(SUM_SENT_LATE_LOCAL, XDP_DROP, "as above, by a packet that came later") \
	X(PARTIAL_TX, XDP_TX, "last contribution: the partial sum left for the node above") \
	X(PARTIAL_REDIRECT, XDP_REDIRECT, "as above, from ranks of this host") \
	X(PARTIAL_AGAIN_TX, XDP_TX, "retry of a complete partial sum: forwarded again") \
	X(PARTIAL_AGAIN_REDIRECT, XDP_REDIRECT, "as above, from ranks of this host") \
	X(RESULT_DOWN_TX, XDP_TX, "result from the node above, passed to the child hosts") \
	X(RESULT_DOWN_FAN, XDP_REDIRECT, "as above, one copy per host") \
	X(NOTICE_DOWN, XDP_DROP, "reply from the node above, handed to the ranks of this host") \
	X(DROP_RESULT_HERE, XDP_DROP, "retry of a sum whose result is in the inbox of its host") \
	X(SUM_TO_SERVER, XDP_DROP, "last contribution: the sum lies in the inbox of the job's server") \
	X(SUM_TO_SERVER_LATE, XDP_DROP, "as above, by a full-length packet that came later") \
	X(SERVER_REMINDED, XDP_TX, "retry of a sum that waits for the server's answer: HELD, and the server was told again") \
	X(ANSWER_SENT, XDP_REDIRECT, "the server's answer left as the result") \
	X(DROP_ANSWER_OLD, XDP_DROP, "answer that was taken already, or whose sum nobody can still need") \
	X(DROP_ANSWER_EARLY, XDP_DROP, "answer to a sum that the server was not given, or to another collective") \
	X(PING_UP_TX, XDP_TX, "a child's PING, passed to the node above") \
	X(PING_UP_REDIRECT, XDP_REDIRECT, "as above, from ranks of this host") \
	X(DROP_MAC, XDP_DROP, "tag missing or wrong: not from a member that has the job's key") \
	X(PONG_SEEN, XDP_DROP, "answer to a PING of this host") \
	X(DROP_PING_OLD, XDP_DROP, "PING that was heard before, or answer to one of long ago, of a job with a key: somebody repeats it") \
	X(PONG_DOWN_TX, XDP_TX, "answer to a PING that was passed on, to the child whose PING it was")

enum mlnet_verdict {
#define MLNET_X(name, action, help) MLNET_V_##name,
	MLNET_VERDICTS(MLNET_X)
#undef MLNET_X
	MLNET_V_COUNT
};

#define MLNET_VERDICTS_MAX 64 /* counter slots in the maps; room to append */

MLNET_STATIC_ASSERT(MLNET_V_COUNT <= MLNET_VERDICTS_MAX, "verdict counters fit");

#endif /* MLNET_ABI_VERDICT_H */
