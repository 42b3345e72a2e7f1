# SPDX-License-Identifier: Apache-2.0
"""What a schedule recorded, in Chrome's trace format (chrome://tracing, https://ui.perfetto.dev), and a picture of it.

A process is a rank. Thread "bucket N": from its gradients being ready to its first use; "class N": what of it was under way.
Times are CLOCK_MONOTONIC in microseconds, so ranks of one host share them.
"""
import json

CLASS_THREADS = 1000  # behind the buckets


def events_of(buckets, chunks, rank):
    """buckets: scheduling._Bucket; chunks: (task, offset, bytes, class, ready_ns, sent_ns, received_ns)."""
    of_task = {}
    for chunk in chunks:
        of_task.setdefault(chunk[0], []).append(chunk)
    events = []
    for bucket in buckets:
        parts = of_task.get(bucket.task, [])
        where = {"step": bucket.step, "bucket": bucket.index}
        for _, offset, size, traffic_class, _, sent_ns, received_ns in parts:
            events.append(_span("chunk", f"bucket {bucket.index}", rank, CLASS_THREADS + traffic_class, sent_ns, received_ns,
                                {**where, "class": traffic_class, "offset": offset, "bytes": size}))
        if not parts:
            continue
        sent_ns, received_ns = min(p[5] for p in parts), max(p[6] for p in parts)
        marks = [("ready, queued", bucket.ready_ns, sent_ns), ("sent", sent_ns, received_ns)]
        if bucket.used_ns is not None and bucket.used_ns >= received_ns:
            marks.append(("received", received_ns, bucket.used_ns))
        size = sum(p[2] for p in parts)
        for name, begin_ns, end_ns in marks:
            events.append(_span("bucket", name, rank, bucket.index, begin_ns, end_ns, {**where, "bytes": size}))
    return _names(events, rank) + events


def _span(category, name, rank, thread, begin_ns, end_ns, args):
    return {"ph": "X", "cat": category, "name": name, "pid": rank, "tid": thread, "ts": begin_ns / 1000,
            "dur": max(end_ns - begin_ns, 0) / 1000, "args": args}


def _names(events, rank):
    threads = sorted({event["tid"] for event in events})
    names = [{"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}]
    for thread in threads:
        name = f"class {thread - CLASS_THREADS}" if thread >= CLASS_THREADS else f"bucket {thread}"
        names.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": thread, "args": {"name": name}})
    return names


def save(events, path):
    """A file that Perfetto and chrome://tracing open."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)
