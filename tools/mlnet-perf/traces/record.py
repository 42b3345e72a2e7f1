#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Records what a model's layers cost, for `mlnet-lab layers`: record.py vgg19 > vgg19.json

A layer is a module with weights, with the batch normalisation behind it and everything up to the next one that has none
(ReLU, pooling, additions). Needs Debian's python3-torchvision; the weights are random, which no time depends on.
"""
import argparse
import json
import platform
import statistics
import sys
import time

try:
    import torch
    import torchvision
except ImportError as error:
    sys.exit(f"record.py: {error}: apt-get install python3-torchvision")


def layers_of(model):
    """Name, modules and parameters of each layer, in the order in which forward calls them."""
    called = []
    hooks = [m.register_forward_pre_hook(lambda m, _, name=name: called.append((name, m)))
             for name, m in model.named_modules() if list(m.parameters(recurse=False))]
    with torch.no_grad():
        model(torch.zeros(1, 3, 224, 224))
    for hook in hooks:
        hook.remove()
    layers = []
    for name, module in called:
        if isinstance(module, torch.nn.BatchNorm2d):
            layers[-1]["modules"].append((name, module))
        else:
            layers.append({"name": name, "modules": [(name, module)]})
    for layer in layers:
        layer["parameters"] = [p for _, m in layer["modules"] for p in m.parameters(recurse=False)]
    return layers


def needs_of(model, layers):
    """For each layer the indexes of those whose output it works on, from the traced graph."""
    index = {name: i for i, layer in enumerate(layers) for name, _ in layer["modules"]}
    behind, needs = {}, [set() for _ in layers]  # behind: by node, the layers that it shows the output of
    for node in torch.fx.symbolic_trace(model).graph.nodes:
        before = set().union(*(behind[source] for source in node.all_input_nodes)) if node.all_input_nodes else set()
        layer = index.get(node.target) if node.op == "call_module" else None
        if layer is None:
            behind[node] = before
        else:
            needs[layer] |= before - {layer}
            behind[node] = {layer}
    return [sorted(n) for n in needs]


def one_step(model, layers, images, labels):
    """Nanoseconds of forward and of backward, by layer."""
    began, ready = {}, {}
    hooks = []
    for i, layer in enumerate(layers):
        def at_start(_module, _inputs, i=i):
            began[i] = time.perf_counter_ns()

        def at_gradient(_gradient, i=i):
            ready[i] = time.perf_counter_ns()  # the last of the layer's parameters stays
        hooks.append(layer["modules"][0][1].register_forward_pre_hook(at_start))
        hooks += [p.register_hook(at_gradient) for p in layer["parameters"]]
    start = time.perf_counter_ns()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    turn = time.perf_counter_ns()
    loss.backward()
    for hook in hooks:
        hook.remove()
    starts = [start] + [began[i] for i in range(1, len(layers))] + [turn]
    forward = [b - a for a, b in zip(starts, starts[1:])]
    backward, before = [0] * len(layers), turn
    for i in reversed(range(len(layers))):
        backward[i] = max(0, ready[i] - before)
        before = max(before, ready[i])
    return forward, backward


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a name of torchvision.models")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5, help="the median of so many, after one that does not count")
    options = parser.parse_args()
    torch.manual_seed(1)
    model = getattr(torchvision.models, options.model)(weights=None).train()
    layers = layers_of(model)
    images = torch.randn(options.batch, 3, 224, 224)
    labels = torch.randint(0, 1000, (options.batch,))
    steps = [one_step(model, layers, images, labels) for _ in range(options.steps + 1)][1:]
    needs = needs_of(model, layers)
    rows = [{"name": layer["name"],
             "bytes": sum(p.numel() * p.element_size() for p in layer["parameters"]),
             "forward_ns": int(statistics.median(s[0][i] for s in steps)),
             "backward_ns": int(statistics.median(s[1][i] for s in steps)),
             "needs": needs[i]} for i, layer in enumerate(layers)]
    head = {"schema": "mlnet.trace/1", "model": options.model, "batch": options.batch, "steps": options.steps,
            "recorded_with": f"torch {torch.__version__}, torchvision {torchvision.__version__}, {torch.get_num_threads()} threads, "
                             f"{platform.machine()}"}
    body = ",\n".join("  " + json.dumps(row) for row in rows)
    print(json.dumps(head)[:-1] + ', "layers": [\n' + body + "\n]}")


if __name__ == "__main__":
    main()
