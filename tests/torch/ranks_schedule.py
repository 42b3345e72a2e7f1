# SPDX-License-Identifier: Apache-2.0
"""Rank program: training with mlnet.schedule against the same training without, bit for bit."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rank_checks import RANK, SIZE, Checks, error_of, join

mlnet = join(timeout_s=60)
checks = Checks()

STEPS = 5
BUCKET_MB = 0.2  # several buckets, some of several chunks


class Net(torch.nn.Module):
    """Convolutions, normalisation, a parameter that two modules share, and a branch that may be left out."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
                                        torch.nn.Linear(8 * 36, 300), torch.nn.ReLU(), torch.nn.Linear(300, 300), torch.nn.ReLU(),
                                        torch.nn.Linear(300, 300), torch.nn.ReLU(), torch.nn.Linear(300, 300), torch.nn.ReLU())
        self.twin = torch.nn.Linear(300, 300)
        self.twin.weight = self.body[6].weight
        self.branch = torch.nn.Linear(300, 300)
        self.head = torch.nn.Linear(300, 10)
        self.unused = torch.nn.Parameter(torch.zeros(5), requires_grad=False)
        self.uses_branch = True

    def forward(self, x):
        x = self.twin(self.body(x))
        return self.head(self.branch(x) if self.uses_branch else x)


def batches(steps):
    data = torch.Generator().manual_seed(100 + RANK)
    return [(torch.randn(8, 1, 8, 8, generator=data), torch.randint(10, (8,), generator=data)) for _ in range(steps)]


def loss_of(model, batch):
    return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])


def plain_loop(model, optimizer, _schedule):
    for batch in batches(STEPS):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()


def train(schedule, loop=plain_loop, make_optimizer=None, options=None, ddp=None, net=Net):
    """All parameters and the optimizer's state after `loop`; schedule: None, "order" or "overlap"."""
    torch.manual_seed(7)
    model = DistributedDataParallel(net(), bucket_cap_mb=BUCKET_MB, **(ddp or {}))
    make_optimizer = make_optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3))
    optimizer = make_optimizer(model.parameters())
    scheduled = None
    if schedule is not None:
        scheduled = mlnet.schedule(model, optimizer if schedule == "overlap" else None, partition=64 << 10, credit=128 << 10, **(options or {}))
    loop(model, optimizer, scheduled)
    if scheduled is not None:
        scheduled.synchronize()
        stats = scheduled.stats()
        assert stats["summed_in_kernel"] > 20 * stats["summed_in_user_space"], stats  # but for tiny buckets
    values = [p.detach().view(-1) for p in model.parameters()]
    values += [b.detach().float().view(-1) for b in model.buffers()]
    for _, state in sorted(optimizer.state_dict()["state"].items()):
        values += [torch.as_tensor(v, dtype=torch.float32).view(-1) for v in state.values() if v is not None]
    return torch.cat(values)


def compare(**arguments):
    expected = train(None, **arguments)
    assert torch.isfinite(expected).all()
    for schedule in ("order", "overlap"):
        ours = train(schedule, **arguments)
        assert torch.equal(ours.view(torch.int32), expected.view(torch.int32)), \
            f"{schedule}: {(ours != expected).sum()} of {ours.numel()} elements differ, by up to {(ours - expected).abs().max()}"


@checks.check
def sgd_has_the_same_bits():
    compare()


@checks.check
def adam_has_the_same_bits_with_a_learning_rate_that_changes():
    def loop(model, optimizer, _schedule):
        rates = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.3)
        for batch in batches(STEPS):
            loss_of(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            rates.step()

    compare(loop=loop, make_optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.01))


@checks.check
def parameter_groups_keep_their_settings():
    def two_groups(parameters):
        parameters = list(parameters)
        return torch.optim.SGD([{"params": parameters[:5], "lr": 0.2}, {"params": parameters[5:]}], lr=0.02, momentum=0.5)

    compare(make_optimizer=two_groups)


@checks.check
def gradients_may_be_views_of_the_buckets():
    compare(ddp={"gradient_as_bucket_view": True})


@checks.check
def unused_parameters_are_found():
    def loop(model, optimizer, _schedule):
        for step, batch in enumerate(batches(STEPS)):
            model.module.uses_branch = step % 2 == 1  # the first step leaves it without any gradient
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()

    compare(loop=loop, ddp={"find_unused_parameters": True})


@checks.check
def gradients_accumulate_without_sync():
    def loop(model, optimizer, _schedule):
        for first, second in zip(batches(2 * STEPS)[::2], batches(2 * STEPS)[1::2]):
            optimizer.zero_grad()
            with model.no_sync():
                loss_of(model, first).backward()
            loss_of(model, second).backward()
            optimizer.step()

    compare(loop=loop)


@checks.check
def gradients_may_be_clipped_after_synchronize():
    def loop(model, optimizer, schedule):
        for batch in batches(STEPS):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            if schedule is not None:
                schedule.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()

    compare(loop=loop)


@checks.check
def a_checkpoint_holds_the_updated_parameters():
    def loop(model, optimizer, _schedule):
        for batch in batches(STEPS):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        checkpoints.append(torch.cat([v.float().view(-1) for v in model.state_dict().values()]).clone())

    checkpoints = []
    compare(loop=loop)
    assert all(torch.equal(other, checkpoints[0]) for other in checkpoints), "checkpoints differ"


@checks.check
def a_gradient_that_is_not_there_yet_is_not_a_number():
    def loop(model, optimizer, schedule):
        optimizer.zero_grad()
        loss_of(model, batches(1)[0]).backward()
        norms.append(error_of(lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
        seen.append(all(p.grad.isnan().all() for p in model.parameters() if p.requires_grad))
        optimizer.step()

    norms, seen = [], []
    train("overlap", loop=loop)
    assert seen == [True] and "single memory location" in norms[0], norms


class Direct(Net):
    """Uses a parameter without calling the module that holds it, from pass `since` on."""
    since = 0

    def __init__(self):
        super().__init__()
        self.spare = torch.nn.Linear(10, 10, bias=False)
        self.passes = 0

    def forward(self, x):
        self.passes += 1
        x = super().forward(x)
        return torch.nn.functional.linear(x, self.spare.weight) if self.passes > self.since else self.spare(x)


@checks.check
def a_parameter_may_be_used_without_its_module():
    compare(net=Direct)


@checks.check
def a_parameter_that_is_suddenly_used_without_its_module_is_named():
    def loop(model, optimizer, schedule):
        model.module.since = 2
        texts.append(error_of(lambda: plain_loop(model, optimizer, schedule)))
        schedule.close()

    texts = []
    try:
        train("overlap", loop=loop, net=Direct)
    except Exception:
        assert texts  # nothing more can be asked of it
    assert "'spare.weight' was used though its module was not called" in texts[0] or "modified by an inplace operation" in texts[0], texts


@checks.check
def urgent_buckets_have_higher_classes():
    def loop(model, optimizer, schedule):
        plain_loop(model, optimizer, schedule)
        schedule.synchronize()
        events.extend(schedule.chrome_trace())

    events = []
    train("overlap", loop=loop, options={"trace": True})
    last = max(e["args"]["step"] for e in events if e.get("cat") == "bucket")
    classes = {e["args"]["bucket"]: e["args"]["class"] for e in events if e.get("cat") == "chunk" and e["args"]["step"] == last}
    assert sorted(classes) == list(range(len(classes))) and len(classes) > 2, classes
    assert [classes[b] for b in sorted(classes)] == sorted(classes.values()), classes
    assert classes[max(classes)] == 7 and len(set(classes.values())) > 2, classes
    spans = {(e["args"]["bucket"], e["name"]) for e in events if e.get("cat") == "bucket" and e["args"]["step"] == last - 1}
    assert spans == {(b, n) for b in classes for n in ("ready, queued", "sent", "received")}, spans


@checks.check
def a_step_becomes_a_picture():
    import pathlib
    import subprocess
    import sys
    import tempfile
    from mlnet import trace

    def loop(model, optimizer, schedule):
        plain_loop(model, optimizer, schedule)
        schedule.synchronize()
        events.extend(schedule.chrome_trace())

    with tempfile.TemporaryDirectory() as folder:
        files = []
        for schedule in ("order", "overlap"):
            events = []
            train(schedule, loop=loop, options={"trace": True})
            files.append(str(pathlib.Path(folder, f"{schedule}.json")))
            trace.save(events, files[-1])
        spans = trace.step_of(events, 2)
        assert all(begin >= 0 and length >= 0 for _, _, begin, length, _ in spans)
        for bucket in {span[0] for span in spans}:
            ends = [begin + length for b, _, begin, length, _ in spans if b == bucket]
            starts = [begin for b, _, begin, _, _ in spans if b == bucket]
            assert all(abs(start - end) < 1e-3 for start, end in zip(starts[1:], ends)), spans  # one follows the other
        if RANK == 0:
            picture = pathlib.Path(folder, "both.png")
            draw = [sys.executable, "-m", "mlnet.trace", *files, "--png", str(picture)]
            subprocess.run(draw, check=True)
            assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
            missing = subprocess.run([*draw, "--step", "999"], stderr=subprocess.PIPE, text=True, check=False)
            assert missing.returncode == 2 and "no step 999" in missing.stderr, missing.stderr


@checks.check
def sizes_are_tuned_at_the_same_steps_and_remembered():
    import os
    import tempfile
    from mlnet import tuning
    tuning.MEASURE_STEPS, tuning.TRIALS, tuning.SETTLE_STEPS = 1, 4, 1
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sizes.json")
        found = []

        def loop(model, optimizer, schedule):
            for batch in batches(12):
                optimizer.zero_grad()
                loss_of(model, batch).backward()
                optimizer.step()
            if schedule is not None:
                found.append(schedule.trials)

        expected = train(None, loop=loop)
        for expected_trials in (4, 4):
            ours = train("overlap", loop=loop, options={"tune": path})
            assert torch.equal(ours.view(torch.int32), expected.view(torch.int32)), "bits differ"
            assert len(found[-1]) == expected_trials and len({t[:2] for t in found[-1]}) == 4, found
    everyone = [None] * SIZE
    dist.all_gather_object(everyone, found)
    assert all(other == everyone[0] for other in everyone), everyone
    assert found[0] == found[1], "what was remembered was not used"


@checks.check
def narrow_lanes_are_within_their_bound():
    exact, narrow = train(None), train("overlap", options={"wire": "int16"})
    assert not torch.equal(exact, narrow)
    torch.testing.assert_close(exact, narrow, rtol=0.05, atol=0.01)


@checks.check
def what_cannot_be_scheduled_is_refused():
    def refused(kind, make, words):
        try:
            make()
        except kind as error:
            assert words in str(error), error
            return
        raise AssertionError(f"not refused: {words}")

    model = DistributedDataParallel(torch.nn.Linear(3, 3))
    refused(TypeError, lambda: mlnet.schedule(torch.nn.Linear(3, 3)), "DistributedDataParallel")
    refused(ValueError, lambda: mlnet.schedule(model, wire="int12"), "int12")
    refused(RuntimeError, lambda: mlnet.schedule(model, partition=1000), "at least 32768")
    refused(RuntimeError, lambda: mlnet.schedule(model, classes=9), "must be 1 to 8")
    refused(TypeError, lambda: mlnet.schedule(model, torch.optim.LBFGS(model.parameters())), "LBFGS")
    scheduled = mlnet.schedule(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    refused(RuntimeError, lambda: mlnet.schedule(model, optimizer), "register_comm_hook")
    assert "step" not in vars(optimizer), "the optimizer was touched though the schedule was refused"
    refused(RuntimeError, scheduled.chrome_trace, "trace=True")
    scheduled.close()
    refused(RuntimeError, scheduled.stats, "closed")


@checks.check
def ranks_of_a_smaller_group_may_have_scheduled_before():
    group = dist.new_group([0, 1])
    if RANK < 2:
        mlnet.schedule(DistributedDataParallel(torch.nn.Linear(3, 3), process_group=group))
    mlnet.schedule(DistributedDataParallel(torch.nn.Linear(3, 3)))  # on all ranks: they meet though two have a schedule more


@checks.check
def schedules_of_different_groups_do_not_meet():
    from mlnet.scheduling import _store_of
    stores = [_store_of(dist.new_group()) for _ in range(2)]
    if RANK == 0:
        for number, store in enumerate(stores):
            store.set("whose", str(number))
    dist.barrier()
    assert [store.get("whose") for store in stores] == [b"0", b"1"], [store.get("whose") for store in stores]


@checks.check
def a_schedule_has_the_timeout_of_its_group():
    import datetime
    from mlnet.groups import timeout_of
    assert timeout_of(dist.distributed_c10d._get_default_group()) == datetime.timedelta(seconds=60)
    group = dist.new_group(timeout=datetime.timedelta(seconds=8))  # long enough for all to meet on a busy machine
    model = DistributedDataParallel(torch.nn.Linear(3, 3), process_group=group)
    dist.barrier()
    mlnet.schedule(model)
    if RANK == 0:
        text = error_of(lambda: model(torch.ones(2, 3)).sum().backward())  # the others never get there
        assert "E_TIMEOUT" in text and "8000 ms" in text, text


dist.barrier()
checks.report()
mlnet.close()
