#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of the scenario ddp: trains a small network on the numbers of a file, and writes its parameters to another.

usage: train.py IN.npz OUT.npz. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the environment, as with torchrun. IN has x, y,
w1, b1, w2, b2, rate, steps (testbed/training.py). The last line of the output is mlnet.stats() as JSON.
"""
import json
import os
import sys

import numpy
import torch
import torch.distributed as dist

import mlnet

torch.set_num_threads(1)
given = numpy.load(sys.argv[1])
dist.init_process_group("mlnet")
first, second = torch.nn.Linear(*given["w1"].shape[::-1]), torch.nn.Linear(*given["w2"].shape[::-1])
with torch.no_grad():
    for parameter, name in ((first.weight, "w1"), (first.bias, "b1"), (second.weight, "w2"), (second.bias, "b2")):
        parameter.copy_(torch.from_numpy(given[name]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(first, torch.nn.Tanh(), second))
optimizer = torch.optim.SGD(model.parameters(), lr=float(given["rate"]))
x, y = torch.from_numpy(given["x"]), torch.from_numpy(given["y"])
for step in range(int(given["steps"])):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"step {step + 1}: loss {loss.item():.6f}", flush=True)
with open(sys.argv[2], "wb") as out:
    numpy.savez(out, w1=first.weight.detach(), b1=first.bias.detach(), w2=second.weight.detach(), b2=second.bias.detach())
print(json.dumps(mlnet.stats() | {"rank": int(os.environ["RANK"])}), flush=True)
dist.barrier()  # rank 0 holds the store: nobody may still need it when it goes
dist.destroy_process_group()
