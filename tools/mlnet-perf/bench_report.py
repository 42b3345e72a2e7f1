# SPDX-License-Identifier: Apache-2.0
"""What tools/bench measured, as a page of tables and as plots. Needs Debian's python3-matplotlib for the plots."""
HEADER = """# How fast whole collectives are

Written by `tools/bench`{quick}. {processors} processors ({model}), Linux {kernel}; load before: {load}.

- Every host is a network namespace of this one machine, and a veth is not a NIC: all hosts share the processors, segmentation and
  the bridge cost time that hardware does not take, and rates come from a shaper. **Ratios mean something, absolute numbers little.**
- Sides take turns within one run, round after round. A number is a median over all rounds; in brackets the least and the most
  that any single round gave. Gloo and Open MPI have the fastest of their algorithms for each size and round, and no XDP
  program is on the links while they run, since it would switch off their segmentation offload.
- Every row is checked against sums in long double, and bit for bit between ranks.
- mlnet's bound is that of the block (`--bound block`), which is what DDP hooks ask for; plain `all_reduce` also promises
  2^-12 of each element and costs more packets where blocks have a wide range.
"""


def name_of(row):
    return f"mlnet {row['wire']}" if row["backend"] == "mlnet" else row["backend"]


def find(rows, name, **wanted):
    return next((row for row in rows if name_of(row) == name and all(row.get(k) == v for k, v in wanted.items())), None)


def ratio(slow, fast, key="time_us_p50"):
    """How much faster `fast` is, and the least and the most of a round."""
    rounds = [a / b for a, b in zip(slow["round_us_p50"], fast["round_us_p50"]) if b > 0]
    value = slow[key] / fast[key]
    return value, (min(rounds), max(rounds)) if rounds and key == "time_us_p50" else None


def verdict(what, value, target, at_least, spread=None, unit="x"):
    return {"what": what, "value": value, "target": target, "at_least": at_least, "unit": unit, "spread": spread,
            "met": value >= target if at_least else value <= target}


def cpu_of(row):
    return row["cpu_s_per_GB"]["user"] + row["cpu_s_per_GB"]["system"]


def against(rows, peer, targets, **wanted):
    out = []
    for wire, target in targets.items():
        own, other = find(rows, f"mlnet {wire}", **wanted), find(rows, peer, **wanted)
        if own and other:
            times, spread = ratio(other, own)
            where = "".join(f", {key} {value}" for key, value in wanted.items())
            out.append(verdict(f"{wire} against {peer}{where}: times as fast", times, target, True, spread))
    return out


def link_verdicts(part):
    rows = part["rows"]
    out = against(rows, "gloo", {"int32": 1.4, "int16": 2.8, "int8": 5.4})
    out += against(rows, "gloo-fp16", {"int16": 1.35}) + against(rows, "mpi", {"int32": 1.4})
    own = find(rows, "mlnet int32")
    out.append(verdict("int32: payload, share of what the link carries in that time", own["link_percent"], 89, True, unit="%"))
    return out


def cpu_verdicts(part):
    return [v for mtu in (1500, 3498) for v in against(part["rows"], "gloo", {"int32": 0.9, "int16": 1.5, "int8": 2.5}, mtu=mtu)]


def latency_verdicts(part):
    own, peer = find(part["rows"], "mlnet int32"), find(part["rows"], "gloo")
    value, spread = ratio(own, peer)
    tail, _ = ratio(own, peer, "time_us_p99")
    return [verdict("median time over Gloo's", value, 0.5, False, spread), verdict("p99 over Gloo's", tail, 0.5, False)]


def scaling_verdicts(part):
    rows = sorted(part["rows"], key=lambda row: row["ranks"])
    growth = 100 * (rows[-1]["time_us_p50"] / rows[0]["time_us_p50"] - 1)
    return [verdict(f"time of {rows[-1]['ranks']} workers over that of {rows[0]['ranks']}, growth", growth, 5, False, unit="%")]


def sizes_verdicts(part):
    own = sorted((row for row in part["rows"] if row["backend"] == "mlnet"), key=lambda row: row["bytes"])
    slower, uneven = [], []
    for row in own:
        peer = find(part["rows"], "gloo", bytes=row["bytes"])
        slower.append((ratio(row, peer)[0], row["bytes"]))
    for before, row, after in zip(own, own[1:], own[2:]):
        # Time at this size, if the line between its neighbours went straight through it.
        straight = before["time_us_p50"] + (after["time_us_p50"] - before["time_us_p50"]) * \
            (row["bytes"] - before["bytes"]) / (after["bytes"] - before["bytes"])
        uneven.append((100 * (row["time_us_p50"] / straight - 1), row["bytes"]))
    worst, at = max(slower)
    out = [verdict(f"slowest size beside Gloo ({at} B): time over Gloo's", worst, 1, False)]
    if uneven:
        worst, at = max(uneven)
        out.append(verdict(f"furthest above the line between its neighbours ({at} B)", worst, 20, False, unit="%"))
    memory = max(row["memory_bytes"] for row in own) / 2**20
    out.append(verdict("rank: resident beyond its tensors, the whole process", memory, 64, False, unit="MiB"))
    out.append(verdict("aggregator: resident of its mlnetd, its pools are the kernel's", part["daemon_memory_bytes"] / 2**20, 32, False,
                       unit="MiB"))
    return out


def ddp_verdicts(part):
    share = min(row["time_us_p50"] / row["alone_us"] - 1 for row in part["rows"] if row["backend"] == "gloo")
    return [verdict("Gloo's step: communication over computing", share, 10, True)] + against(part["rows"], "gloo", {"int32": 1.3, "int16": 2.3})


def table(head, lines):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] +
                     ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]) + "\n"


def targets_table(verdicts):
    lines = []
    for v in verdicts:
        spread = f" [{v['spread'][0]:.2f}, {v['spread'][1]:.2f}]" if v["spread"] else ""
        sign = "at least" if v["at_least"] else "at most"
        lines.append((v["what"], f"{v['value']:.2f} {v['unit']}{spread}", f"{sign} {v['target']} {v['unit']}", "yes" if v["met"] else "**no**"))
    return table(("what", "measured", "target", "met"), lines)


def rows_table(rows, extra=None):
    head = ["who", "bytes", "ranks", "p50 ms", "p25 to p75", "p99", "link %", "CPU s/GB, ranks", "machine", "memory MiB", "algorithm"]
    lines = []
    for row in rows:
        link = "" if row["link_percent"] is None else f"{row['link_percent']:.1f}"
        lines.append([name_of(row), row["bytes"], row["ranks"], f"{row['time_us_p50'] / 1e3:.3f}",
                      f"{row['time_us_p25'] / 1e3:.3f} to {row['time_us_p75'] / 1e3:.3f}", f"{row['time_us_p99'] / 1e3:.3f}", link,
                      f"{cpu_of(row):.2f}", f"{row['cpu_s_per_GB']['machine']:.2f}", f"{row['memory_bytes'] / 2**20:.0f}",
                      row["algorithm"] or ""])
        if extra:
            lines[-1].insert(0, row[extra])
    return table([extra, *head] if extra else head, lines)


PARTS = {
    "link": ("Links are the limit", link_verdicts, """4 workers at 500 Mb/s, an aggregator at 2 Gb/s, one large float32 tensor. A ring carries 2(n-1)/n = 1.5 times the tensor
over each link, mlnet once: with a full header and trailer (1408 of 1514 bytes are payload, and 93 % is the most the link share can be) the limits
are 1.47, 2.94 and 5.89. Not met by little may be the processors: the whole lab has two."""),
    "cpu": ("Processors are the limit", cpu_verdicts, """The same without any rate: 4 ranks, 5 daemons and all of the network share the processors. *CPU s/GB* is processor time
for 10^9 bytes of tensor: of the ranks (user and system), and of the whole machine, whoever ran. An MTU of 3498 is the most that veth gives an XDP
program in one piece; for Gloo's TCP, which passes the lab in super-packets, it changes little."""),
    "latency": ("4 KiB", latency_verdicts, """One small all-reduce at a time, ranks released together. mlnet here as its default is: up to 16 KiB over all ranks are
gathered and added by the ranks, one round trip; below it, the same tensor summed in the kernel (probes first: two round trips)."""),
    "scaling": ("More workers", scaling_verdicts, """Workers at 100 Mb/s, aggregator at 2 Gb/s: each worker's own link stays the limit, so time should not grow."""),
    "sizes": ("Every size, and memory", sizes_verdicts, """No size slower than Gloo, none further than 20 % above the line through its neighbours. Memory: the most resident at once,
measured up to the end of each size, the measurement's own two tensors taken off."""),
    "ddp": ("A training step", ddp_verdicts, """DistributedDataParallel over 4 workers at 500 Mb/s, 25 MB buckets as PyTorch cuts them, a loss whose gradient costs next to
nothing; mlnet by its hook (`CompressState`), Gloo as DDP uses it."""),
    "loss": ("Loss", lambda part: [], "Frames lost at random on every link, in each direction."),
}


MICRO = """`tests/bench/README.md` says what each row is. An iteration has many packets or elements; of one packet are `ns` (what the program under test
takes), `add_ns` (an AVX2 add of the same bytes), `copy_ns` (memcpy of them) and `x_add`, the first over the second; `packet` and `per_chunk` are seconds.
`x_memcpy`: bandwidth over that of memcpy of the same floats. All of one core, without any NIC."""


def ddp_table(rows):
    return table(("who", "bytes of gradients", "step p50 ms", "p25 to p75", "without communication"), [
        (name_of(row), row["bytes"], f"{row['time_us_p50'] / 1e3:.1f}", f"{row['time_us_p25'] / 1e3:.1f} to {row['time_us_p75'] / 1e3:.1f}",
         f"{row['alone_us'] / 1e3:.1f}") for row in rows])


def micro_verdicts(micro):
    if not {"bench_packet_path", "bench_quantize"} <= micro.keys():
        return []
    whole = next(row for row in micro["bench_packet_path"] if row["name"].startswith("WholeSums/int32/blocks:11/log2_slots:8"))
    back = next(row for row in micro["bench_quantize"] if row["name"].startswith("Floats/ThereAndBack/bits:32/KiB:65536"))
    return [verdict("full contribution, all stages, over the AVX2 add of its bytes", whole["x_add"], 3, False),
            verdict("the same: payload of one core", whole["Gbps"], 45, True, unit="Gb/s"),
            verdict("quantise and dequantise, 64 MiB, one core, over memcpy's bandwidth", back["x_memcpy"], 0.4, True)]


def micro_table(rows):
    """Google Benchmark's rows; its counters are the numbers with a fraction that it does not explain itself."""
    counters = dict.fromkeys(key for row in rows for key, value in row.items() if isinstance(value, float) and key not in ("real_time", "cpu_time"))
    return table(("stage", "an iteration", *counters), [
        (row["name"], f"{row['real_time']:.0f} {row['time_unit']}", *(f"{row[key]:.3g}" if key in row else "" for key in counters)) for row in rows])


def page(results):
    m = results["machine"]
    text = HEADER.format(quick=" --quick, so the numbers mean nothing" if results["quick"] else "", processors=m["processors"], model=m["model"],
                         kernel=m["kernel"], load=", ".join(f"{load:.1f}" for load in m["load_before"]))
    for name, (title, verdicts, meaning) in PARTS.items():
        part = results["parts"].get(name)
        if not part:
            continue
        text += f"\n## {title}\n\n{meaning}\n\n"
        found = verdicts(part)
        if found:
            text += targets_table(found) + "\n"
        rows = part["rows"] + part.get("rows_kernel", [])
        text += ddp_table(rows) if name == "ddp" else rows_table(rows, {"loss": "loss_percent", "cpu": "mtu"}.get(name))
        text += f"\n![{title}]({name}.png)\n"
    micro = {name: run["benchmarks"] for name, run in results["parts"].get("micro", {}).items() if isinstance(run, dict)}
    if micro:
        text += f"\n## Stages by themselves\n\n{MICRO}\n\n" + targets_table(micro_verdicts(micro))
    return text + "".join(f"\n### {name}\n\n{micro_table(rows)}" for name, rows in micro.items())


def bars(axes, name, rows):
    below = {"loss": "{loss_percent} %", "scaling": "{ranks}", "cpu": "MTU {mtu}"}.get(name)
    labels = [name_of(row) + (f"\n{below.format(**row)}" if below else "") for row in rows]
    x = range(len(rows))
    p50 = [row["time_us_p50"] / 1e3 for row in rows]
    axes.bar(x, p50, color=["tab:blue" if row["backend"] == "mlnet" else "tab:orange" for row in rows],
             yerr=[[p - row["time_us_p25"] / 1e3 for p, row in zip(p50, rows)], [row["time_us_p75"] / 1e3 - p for p, row in zip(p50, rows)]], capsize=3)
    axes.set_xticks(x, labels, fontsize=8)
    axes.set_ylabel("ms, median; p25 to p75")


def lines(axes, rows):
    for name in sorted({name_of(row) for row in rows}):
        own = sorted((row for row in rows if name_of(row) == name), key=lambda row: row["bytes"])
        axes.loglog([row["bytes"] for row in own], [row["time_us_p50"] / 1e3 for row in own], marker="o", label=name)
    axes.set_xlabel("bytes")
    axes.set_ylabel("ms, median")
    axes.legend()


def plot(output, results):
    import matplotlib
    matplotlib.use("Agg")  # no display
    from matplotlib import pyplot
    for name, (title, _, _) in PARTS.items():
        part = results["parts"].get(name)
        if not part:
            continue
        figure, axes = pyplot.subplots(figsize=(8, 4))
        lines(axes, part["rows"]) if name == "sizes" else bars(axes, name, part["rows"])
        axes.set_title(title)
        figure.tight_layout()
        figure.savefig(output / f"{name}.png", dpi=120)
        pyplot.close(figure)


def write(output, results):
    (output / "README.md").write_text(page(results))
    plot(output, results)
