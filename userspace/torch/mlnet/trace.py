# SPDX-License-Identifier: Apache-2.0
"""What a schedule recorded, in Chrome's trace format (chrome://tracing, https://ui.perfetto.dev), and a picture of it.

A process is a rank. Thread "bucket N": from its gradients being ready to its first use; "class N": what of it was under way.
Times are CLOCK_MONOTONIC in microseconds, so ranks of one host share them.

    python3 -m mlnet.trace rank0.json [more.json ...] --step 7 --png iteration.png      # one below the other: before and after
"""
import argparse
import json
import pathlib

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
        ready_ns, sent_ns, received_ns = parts[0][4], min(p[5] for p in parts), max(p[6] for p in parts)
        marks = [("ready, queued", ready_ns, sent_ns), ("sent", sent_ns, received_ns)]
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


def step_of(events, step=None):
    """The spans of one step's buckets, (bucket, name, begin in ms, length in ms, class), from its beginning on; the last step by default."""
    buckets = [event for event in events if event.get("cat") == "bucket"]
    if not buckets:
        raise ValueError("there is no bucket in this trace (mlnet.schedule(..., trace=True))")
    step = max(event["args"]["step"] for event in buckets) if step is None else step
    spans = [event for event in buckets if event["args"]["step"] == step]
    if not spans:
        raise ValueError(f"there is no step {step} in this trace")
    classes = {e["args"]["bucket"]: e["args"]["class"] for e in events if e.get("cat") == "chunk" and e["args"]["step"] == step}
    begin = min(event["ts"] for event in spans)
    return [(e["args"]["bucket"], e["name"], (e["ts"] - begin) / 1000, e["dur"] / 1000, classes.get(e["args"]["bucket"], 0)) for e in spans]


COLOURS = {"ready, queued": "0.75", "sent": "tab:blue", "received": "tab:green"}


def draw(steps, path):
    """A picture of {title: step_of(...)}, one below the other on the same scale. Needs matplotlib."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(len(steps), 1, sharex=True, squeeze=False, figsize=(9, 1 + 2.5 * len(steps)))
    for axis, (title, spans) in zip(axes[:, 0], steps.items()):
        for bucket, name, begin, length, _ in spans:
            axis.barh(bucket, length, left=begin, color=COLOURS[name], label=name)
        ticks = {bucket: f"bucket {bucket}, class {level}" for bucket, _, _, _, level in spans}
        axis.set_yticks(list(ticks), list(ticks.values()))
        axis.set_title(title)
    handles = {label: handle for handle, label in zip(*axes[0, 0].get_legend_handles_labels())}
    axes[0, 0].legend(handles.values(), handles.keys(), loc="lower right")
    axes[-1, 0].set_xlabel("ms since the first gradients of the step were ready")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(prog="python3 -m mlnet.trace", description="Draws one step of each trace into a PNG.")
    parser.add_argument("traces", nargs="+", type=pathlib.Path, help="files of mlnet.trace.save()")
    parser.add_argument("--step", type=int, help="default: the last one of each")
    parser.add_argument("--png", type=pathlib.Path, required=True)
    args = parser.parse_args()
    try:
        steps = {path.stem: step_of(json.loads(path.read_text(encoding="utf-8"))["traceEvents"], args.step) for path in args.traces}
    except (OSError, ValueError, KeyError) as error:
        parser.exit(2, f"mlnet.trace: {error}\n")
    draw(steps, args.png)


if __name__ == "__main__":
    main()
