# SPDX-License-Identifier: Apache-2.0
"""Rank program: how a large tensor of another device goes through the host, and how that fails."""
import datetime

import torch
import torch.distributed as dist

import mlnet_test_device
from device_checks import BUFFERS, CHUNK, DEVICE, assert_same_bits, copies, journal_of, values
from rank_checks import RANK, Checks, error_of, join

mlnet = join()
checks = Checks()

CHUNKS = 10
COUNT = CHUNKS * CHUNK // 4  # 40 MiB of float32
PATIENCE_MS = 20_000
store = dist.distributed_c10d._get_default_store()


def group_of_all(timeout_s):
    return dist.new_group(timeout=datetime.timedelta(seconds=timeout_s))


def after(rank, name):
    """Decorator of a step that the other ranks take only when `rank` has taken its own."""
    def decorate(step):
        if RANK != rank:
            store.wait([name])
        try:
            return step()
        finally:
            if RANK == rank:
                store.set(name, "")
    return decorate


@checks.check
def forty_mebibytes_go_through_four_buffers_while_the_network_works():
    tensor = torch.ones(COUNT).to(DEVICE)
    mlnet_test_device.clear()

    @after(0, "rank 0 is ahead")
    def work():
        started = dist.all_reduce(tensor, async_op=True)
        if RANK == 0:
            # The others have not called yet, so nothing can have come back: the next chunks were copied meanwhile.
            assert mlnet_test_device.wait_for("to_host", BUFFERS, PATIENCE_MS), mlnet_test_device.journal()
            assert copies("to_device") == [] and not started.is_completed()
        return started

    work.wait()
    journal = mlnet_test_device.journal()
    in_order = [(CHUNK * number, CHUNK) for number in range(CHUNKS)]
    assert copies("to_host") == in_order and copies("to_device") == in_order, journal
    ahead = 0
    for what, *_ in journal:
        ahead += {"to_host": 1, "to_device": -1}.get(what, 0)
        assert ahead <= BUFFERS, journal
    assert (tensor.cpu() == dist.get_world_size()).all()


@checks.check
def a_copy_waits_for_what_the_caller_has_queued_and_for_nothing_that_follows():
    tensor = torch.ones(CHUNK).to(DEVICE)
    journal = journal_of(lambda: dist.all_reduce(tensor))
    (recorded,) = [entry for entry in journal if entry[0] == "record"]
    assert recorded[3] == 0 and journal[0] == recorded, journal  # the caller's stream, before any copy
    streams = {what: {entry[3] for entry in journal if entry[0] == what} for what in ("to_host", "to_device", "block")}
    assert len(streams["to_host"]) == len(streams["to_device"]) == 1 and 0 not in streams["block"], journal
    assert streams["block"] == streams["to_host"] | streams["to_device"] and len(streams["block"]) == 2, journal
    assert {entry[2] for entry in journal if entry[0] == "block"} == {recorded[2]}, journal


@checks.check
def a_result_in_a_view_is_there_before_the_work_is_done():
    tensor = torch.ones(CHUNK // 1000, 1000).to(DEVICE).t()
    journal = journal_of(lambda: dist.all_reduce(tensor))
    assert [entry[0] for entry in journal][-2:] == ["on_device", "synchronize"], journal
    assert journal[-1][3] == journal[-2][3]
    assert (tensor.cpu() == dist.get_world_size()).all()


@checks.check
def ranks_with_tensors_on_different_devices_agree_up_to_one_chunk():
    tensor = values(RANK, torch.float32, CHUNK // 4)
    mixed = tensor.to(DEVICE) if RANK % 2 else tensor.clone()
    dist.all_reduce(tensor)
    dist.all_reduce(mixed)
    assert mixed.cpu().numpy().tobytes() == tensor.numpy().tobytes()


@checks.check
def ranks_with_large_tensors_on_different_devices_get_an_error_that_shows_both_calls():
    group = group_of_all(10)
    tensor = torch.ones(COUNT)
    text = error_of(lambda: dist.all_reduce(tensor.to(DEVICE) if RANK == 1 else tensor, group=group))
    assert "E_MISMATCH" in text and str(COUNT) in text and str(CHUNK // 4) in text, text


@checks.check
def a_copy_that_fails_half_way_ends_the_group_instead_of_adding_to_the_wrong_chunk():
    group = group_of_all(3)
    tensors = [torch.ones(COUNT).to(DEVICE) for _ in range(2)]
    if RANK == 1:
        mlnet_test_device.fail_after(BUFFERS)
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    texts = [error_of(work.wait) for work in works]
    texts.append(error_of(lambda: dist.all_reduce(torch.ones(CHUNK // 4), group=group)))
    for text in texts:
        assert ("told to fail here" if RANK == 1 else "E_TIMEOUT") in text, texts


@checks.check
def closing_a_group_cancels_the_chunks_that_are_not_issued_yet():
    group = group_of_all(60)
    if RANK == 0:
        tensors = [torch.ones(COUNT).to(DEVICE), torch.ones(5)]
        works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
        mlnet.close(group)
        for work in works:
            text = error_of(work.wait)
            assert "E_CANCELLED" in text, text
    dist.barrier()


@checks.check
def the_default_group_still_works_and_so_does_the_device():
    tensor = values(RANK, torch.float32, CHUNK)
    on_device = tensor.to(DEVICE)
    dist.all_reduce(tensor)
    dist.all_reduce(on_device)
    assert_same_bits(on_device, tensor)


dist.barrier()
checks.report()
dist.destroy_process_group()
