# SPDX-License-Identifier: Apache-2.0
"""A user's train.py, with nothing in it that is not in the README: rank and world come from what started it."""
import hashlib
import json
import os

import torch
import torch.distributed as dist

import mlnet

dist.init_process_group("mlnet")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(3)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(rank)
rule = torch.randn(300, 8, generator=torch.Generator().manual_seed(5)) / 17
losses = []
for _ in range(25):
    x = torch.randn(64, 300, generator=data)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), x @ rule)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
bits = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print(json.dumps({"rank": rank, "size": size, "host": os.uname().nodename, "first_loss": losses[0], "last_loss": losses[-1],
                  "parameters": hashlib.sha256(bits).hexdigest(), "stats": mlnet.stats()}), flush=True)
dist.destroy_process_group()
