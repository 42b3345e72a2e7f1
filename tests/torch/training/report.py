# SPDX-License-Identifier: Apache-2.0
"""What the runs show: the table, the criteria, the plots."""
import pathlib
import statistics

BASE = "float32"
MAY_BE_BELOW = {"int16": 0.3, "int8": 0.5}  # points of mean final quality below float32, for every task
CONTROL = ("words", "int8-no-feedback", 0.5)  # must be further below than this, or the test sees nothing
SHORT_MAY_BE_BELOW = {"int32": 2.0, "int16": 2.0, "int8": 2.0}  # one seed, few steps: only that it trains at all
SHARE_OF_INT32_BYTES = {"int16": 0.65, "int8": 0.40}  # half and a quarter, and what headers add
COLOURS = {"float32": "black", "int32": "tab:blue", "int16": "tab:green", "int8": "tab:orange",
           "int8-no-feedback": "tab:red", "topk": "tab:purple"}


class Evidence:
    """Runs of all ranks: dicts as train.py prints them."""

    def __init__(self, runs):
        self.runs = runs
        unique = lambda key: list(dict.fromkeys(run[key] for run in runs))
        self.tasks, self.variants, self.seeds = unique("task"), unique("variant"), unique("seed")

    def of(self, task, variant, seed=None):
        return [run for run in self.runs
                if run["task"] == task and run["variant"] == variant and seed in (None, run["seed"])]

    def quality(self, task, variant):
        """Final quality per seed; every rank has computed the same."""
        return [self.of(task, variant, seed)[0]["quality"] for seed in self.seeds]

    def differences(self, task, variant):
        """Points above float32, pair by pair."""
        return [ours - base for ours, base in zip(self.quality(task, variant), self.quality(task, BASE))]

    def loss_curve(self, task, variant):
        """Training loss of each step, averaged over ranks and seeds."""
        return [statistics.fmean(losses) for losses in zip(*(run["losses"] for run in self.of(task, variant)))]

    def bytes_per_step(self, task, variant, direction):
        return statistics.fmean(run[f"bytes_{direction}"] / run["steps"] for run in self.of(task, variant))

    def differing_ranks(self):
        """Names of the runs after which ranks held different parameters."""
        return [f"{task} {variant} seed {seed}" for task in self.tasks for variant in self.variants
                for seed in self.seeds
                if len({run["parameters_sha256"] for run in self.of(task, variant, seed)}) != 1]

    def rows(self):
        for task in self.tasks:
            for variant in self.variants:
                differences = self.differences(task, variant)
                yield {
                    "task": task, "variant": variant, "quality": self.quality(task, variant),
                    "mean_quality": statistics.fmean(self.quality(task, variant)),
                    "mean_difference": statistics.fmean(differences),
                    "deviation": statistics.stdev(differences) if len(differences) > 1 else 0.0,
                    "bytes_sent_per_step": self.bytes_per_step(task, variant, "sent"),
                    "bytes_received_per_step": self.bytes_per_step(task, variant, "received"),
                    "seconds": statistics.fmean(run["seconds"] for run in self.of(task, variant)),
                    "loss_curve": self.loss_curve(task, variant),
                }


def print_table(evidence, rows):
    print(f"\n{len(evidence.seeds)} seeds: {evidence.seeds}; quality in percent, difference to {BASE} in points, "
          "bytes per rank and step\n")
    print(f"  {'task':<12}{'variant':<18}{'quality':>9}{'difference':>12}{'deviation':>11}{'sent':>12}"
          f"{'received':>12}{'seconds':>9}")
    for row in rows:
        print(f"  {row['task']:<12}{row['variant']:<18}{row['mean_quality']:>9.2f}{row['mean_difference']:>+12.3f}"
              f"{row['deviation']:>11.3f}{row['bytes_sent_per_step']:>12,.0f}{row['bytes_received_per_step']:>12,.0f}"
              f"{row['seconds']:>9.1f}")
    print(flush=True)


def judge(evidence, rows, short):
    """[(passed, text)], one per criterion that the runs can decide."""
    verdicts = []
    by_name = {(row["task"], row["variant"]): row for row in rows}
    differing = evidence.differing_ranks()
    verdicts.append((not differing, "all ranks end with the same bits" + "".join(f"; not {run}" for run in differing)))
    for task in evidence.tasks:
        for variant, points in (SHORT_MAY_BE_BELOW if short else MAY_BE_BELOW).items():
            if (task, variant) in by_name:
                difference = by_name[task, variant]["mean_difference"]
                verdicts.append((difference >= -points, f"{task}: {variant} is at most {points} points below {BASE}: "
                                                        f"{difference:+.3f}"))
        for variant, share in SHARE_OF_INT32_BYTES.items():
            if (task, variant) in by_name and (task, "int32") in by_name:
                found = (by_name[task, variant]["bytes_sent_per_step"]
                         / by_name[task, "int32"]["bytes_sent_per_step"])
                verdicts.append((found <= share, f"{task}: {variant} sends at most {share:.0%} of int32's bytes: "
                                                 f"{found:.1%}"))
    task, variant, points = CONTROL
    if not short and (task, variant) in by_name:
        difference = by_name[task, variant]["mean_difference"]
        verdicts.append((difference < -points, f"control: {task}: {variant} is more than {points} points below {BASE}: "
                                               f"{difference:+.3f}"))
    return verdicts


def plot(evidence, rows, folder):
    """Writes loss.png, quality.png and bytes.png: one panel per task."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    def figure(name, draw, label):
        drawing, panels = pyplot.subplots(1, len(evidence.tasks), figsize=(5 * len(evidence.tasks), 4), squeeze=False)
        for panel, task in zip(panels[0], evidence.tasks):
            draw(panel, [row for row in rows if row["task"] == task])
            panel.set_title(task)
        panels[0][0].set_ylabel(label)
        drawing.tight_layout()
        drawing.savefig(pathlib.Path(folder) / f"{name}.png", dpi=120)
        pyplot.close(drawing)

    def loss(panel, mine):
        for row in mine:
            panel.plot(row["loss_curve"], label=row["variant"], color=COLOURS[row["variant"]], linewidth=1)
        panel.set_yscale("log")
        panel.set_xlabel("step")
        panel.legend()

    def quality(panel, mine):
        base = next(row["quality"] for row in mine if row["variant"] == BASE)
        for place, row in enumerate(mine):
            differences = [ours - theirs for ours, theirs in zip(row["quality"], base)]
            panel.plot([place] * len(base), differences, "o", alpha=0.5, color=COLOURS[row["variant"]])
            panel.plot(place, row["mean_difference"], "_", markersize=25, color=COLOURS[row["variant"]])
        panel.axhline(0, color="grey", linewidth=0.5)
        panel.set_xticks(range(len(mine)), [row["variant"] for row in mine], rotation=45, ha="right")

    def sizes(panel, mine):
        panel.bar([row["variant"] for row in mine], [row["bytes_sent_per_step"] for row in mine],
                  color=[COLOURS[row["variant"]] for row in mine])
        panel.set_xticks(range(len(mine)), [row["variant"] for row in mine], rotation=45, ha="right")

    figure("loss", loss, "training loss")
    figure("quality", quality, f"final quality minus {BASE}'s, points")
    figure("bytes", sizes, "bytes sent per rank and step")
