#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what `mlnet-lab -j layers` printed: plot-layers.py -o layers.png FILE...

One panel for each model, a group of bars for each file (one bandwidth) in the order of its rate: median iteration of each
policy as a multiple of the bound, with the least and the most. Needs Debian's python3-matplotlib.
"""
import argparse
import json
import sys

try:
    import matplotlib
except ImportError as error:
    sys.exit(f"plot-layers.py: {error}: apt-get install python3-matplotlib")
matplotlib.use("Agg")  # no display
from matplotlib import pyplot  # noqa: E402  (the backend is chosen before)


def load(files):
    """Runs by model, each sorted by its rate."""
    models = {}
    for name in files:
        with open(name) as file:
            run = json.load(file)
        if run.get("schema") != "mlnet-lab.layers/1":
            sys.exit(f"plot-layers.py: {name} is not what mlnet-lab -j layers prints")
        models.setdefault(run["model"], []).append(run)
    for runs in models.values():
        runs.sort(key=lambda run: run["bytes_per_s"]["median"])
    return models


def draw(axes, model, runs):
    names = [policy["policy"] for policy in runs[0]["policies"]]
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        x, height, below, above = [], [], [], []
        for group, run in enumerate(runs):
            policy = next((p for p in run["policies"] if p["policy"] == name), None)
            if policy is None:
                continue
            x.append(group + (place - (len(names) - 1) / 2) * width)
            height.append(policy["median_s"] / run["bound_s"])
            below.append((policy["median_s"] - policy["least_s"]) / run["bound_s"])
            above.append((policy["most_s"] - policy["median_s"]) / run["bound_s"])
        axes.bar(x, height, width, yerr=[below, above], capsize=2, label=name)
    axes.axhline(1, color="black", linewidth=0.8, linestyle="--")
    axes.set_title(f"{model}, {runs[0]['ranks']} ranks")
    axes.set_xticks(range(len(runs)))
    axes.set_xticklabels([f"{run['bytes_per_s']['median'] / 1e6:.1f} MB/s\nsending / computing\n"
                          f"{run['bytes'] / run['bytes_per_s']['median'] / run['compute_s']:.1f}" for run in runs])
    axes.set_ylabel("iteration / best schedule")
    axes.set_ylim(bottom=0.9)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="layers.png")
    parser.add_argument("files", nargs="+", metavar="FILE")
    options = parser.parse_args()
    models = load(options.files)
    figure, panels = pyplot.subplots(1, len(models), figsize=(5.5 * len(models), 4), squeeze=False)
    for axes, (model, runs) in zip(panels[0], models.items()):
        draw(axes, model, runs)
    panels[0][0].legend()
    figure.tight_layout()
    figure.savefig(options.output, dpi=120)


if __name__ == "__main__":
    main()
