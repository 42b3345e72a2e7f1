# SPDX-License-Identifier: Apache-2.0
"""Rank program: groups, and a schedule, whose packets carry tags."""
import datetime

import torch
import torch.distributed as dist

from rank_checks import RANK, SIZE, Checks

import mlnet

checks = Checks()
torch.set_num_threads(1)
TIMEOUT = datetime.timedelta(seconds=20)


@checks.check
def sums_are_right():
    dist.init_process_group("mlnet", timeout=TIMEOUT, pg_options=mlnet.Options(mac=True))
    for dtype in (torch.int32, torch.float32):
        tensor = torch.arange(50_000).to(dtype)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, SIZE * torch.arange(50_000).to(dtype)), tensor
    assert mlnet.stats()["summed_in_user_space"] == 0, mlnet.stats()
    checks.facts["tagged"] = [mlnet.stats()["job"]]


@checks.check
def a_new_group_has_what_it_asks_for():
    for name, options in (("tagged", mlnet.Options(mac=True)), ("plain", mlnet.Options()), ("plain", None)):
        group = dist.new_group(list(range(SIZE)), timeout=TIMEOUT, pg_options=options)
        tensor = torch.full((10_000,), RANK + 1, dtype=torch.int32)
        dist.all_reduce(tensor, group=group)
        assert torch.equal(tensor, torch.full_like(tensor, SIZE * (SIZE + 1) // 2)), tensor
        checks.facts.setdefault(name, []).append(mlnet.stats(group)["job"])


@checks.check
def what_is_no_option_is_refused():
    try:
        dist.new_group(list(range(SIZE)), timeout=TIMEOUT, pg_options={"mac": True})
    except TypeError as error:
        assert "mlnet.Options" in str(error), error
    else:
        raise AssertionError("no error was raised")


@checks.check
def a_schedule_has_what_its_group_has():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
    schedule = mlnet.schedule(model)
    model(torch.ones(2, 300)).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    checks.facts["tagged"].append(schedule.stats()["job"])


checks.report()
