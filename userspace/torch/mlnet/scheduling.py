# SPDX-License-Identifier: Apache-2.0
"""Gradients in the order in which the next forward pass needs them.

    model = torch.nn.parallel.DistributedDataParallel(model)
    mlnet.schedule(model)               # urgent buckets overtake the backlog; nothing else changes
    mlnet.schedule(model, optimizer)    # and a layer's update waits for its own gradients only, in the next forward pass

The first layers' gradients come last and are needed first. Each of DDP's buckets is cut into chunks; the later one is
produced, the higher its traffic class, from the send queue of this process to the last switch. The parameters are bit for
bit those of the same training without this.
"""
import copy
import inspect
import time
import weakref

import torch
import torch.distributed as dist

from . import _C
from .groups import options_of, timeout_of
from .tuning import Tuning

__all__ = ["Schedule", "schedule"]

MIB = 1 << 20
_schedules = weakref.WeakSet()
_num_schedules = weakref.WeakKeyDictionary()  # of each process group: all of its ranks make the same ones


def schedule(model, optimizer=None, partition=MIB, credit=4 * MIB, classes=8, wire=None, trace=False, tune=None):
    """Schedules the gradients of a DistributedDataParallel model; returns a Schedule. To be called by all ranks.

    optimizer  with it, `optimizer.step()` returns at once, and the next forward pass updates each module's parameters when
               their sums are in, before the module runs: communication overlaps the next forward pass too. Between
               backward and the next forward, gradients hold NaN (reading one by mistake shows) and parameters are old:
               call `synchronize()` before clipping, GradScaler.unscale_, or reading parameters. state_dict() does so by itself
    partition  bytes of a chunk, at least 32 KiB; 0: buckets stay whole
    credit     bytes that may be under way; a class starts a chunk without it while none of its own or above is. 0: no limit
    classes    traffic classes, 1 (none overtakes) to 8
    wire       None: as all_reduce, every element keeps its accuracy; "int32", "int16", "int8": as mlnet.all_reduce
    tune       True: finds partition and credit while the training goes on, 15 trials of 23 steps, all ranks at the same steps.
               A path: also remembers them there (rank 0's file counts), for the next run of the same buckets and ranks
    trace      keep what happened to each bucket, for `chrome_trace()`
    """
    return Schedule(model, optimizer, partition, credit, classes, wire, trace, tune)


class _Bucket:
    """One bucket of one step: what is being summed, and the gradients that lie in it."""

    def __init__(self, task, buffer, index, step):
        self.task, self.buffer, self.index, self.step = task, buffer, index, step
        self.used_ns = None


class Schedule:
    def __init__(self, model, optimizer, partition, credit, classes, wire, trace, tune):
        if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
            raise TypeError(f"mlnet.schedule takes a DistributedDataParallel model, not {type(model).__name__}")
        if wire not in (None, "int32", "int16", "int8"):
            raise ValueError(f"wire is None, 'int32', 'int16' or 'int8', not {wire!r}")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise TypeError("mlnet.schedule cannot defer LBFGS: its step evaluates the model")
        self.model = model
        group = model.process_group
        self._size = dist.get_world_size(group)
        store = _store_of(group)
        self._scheduler = _C.Scheduler(store, dist.get_rank(group), self._size, timeout_of(group), partition, credit, classes, wire,
                                       options_of(group).mac)
        model.register_comm_hook(self, _hook)  # refuses a second one, before anything of the training is touched
        self._tuning = Tuning(store, group, (partition, credit), tune) if tune else None
        self._step, self._layout, self._known = 0, [], None
        self._gradients_at = {}  # parameter -> where its gradient lay before backward; only where that matters
        if model.gradient_as_bucket_view and self._size & (self._size - 1):
            self._watch_views()
        self._trace = [] if trace else None
        self._scheduler.set_trace(trace)
        self._updates = _DeferredUpdates(self, optimizer) if optimizer is not None else None
        _schedules.add(self)

    def synchronize(self):
        """Until all sums are in, and with an optimizer all updates are made: gradients and parameters are what they are
        without a schedule."""
        if self._updates is not None:
            self._updates.finish()

    def stats(self):
        """Counters of the schedule's own job, as mlnet.stats()."""
        return {"job": self._open().job, **self._open().stats()}

    @property
    def trials(self):
        """What tuning has tried: [(partition, credit, ns a step)]."""
        return self._tuning.trials if self._tuning is not None else []

    def set_sizes(self, partition, credit):
        """Other sizes from the next bucket on. The same at the same step on all ranks."""
        self._open().set_sizes(partition, credit)

    def close(self):
        """Leaves the schedule's job. The model must not be trained any more."""
        self._scheduler = None

    def _open(self):
        if self._scheduler is None:
            raise RuntimeError("mlnet: the schedule is closed, so its model cannot be trained (build the model and schedule it again)")
        return self._scheduler

    def chrome_trace(self):
        """What was recorded, as the events of Chrome's trace format (chrome://tracing, Perfetto), and forgets it."""
        from .trace import events_of
        if self._trace is None:
            raise RuntimeError("mlnet: nothing was recorded (mlnet.schedule(..., trace=True))")
        buckets, self._trace = self._trace, []
        return events_of(buckets, self._open().take_trace(), dist.get_rank(self.model.process_group))

    # All ranks see the same buckets in the same order at the same step, so they make the same calls.
    def _add(self, bucket):
        buffer = bucket.buffer()
        if not buffer.is_floating_point():
            raise TypeError(f"mlnet.schedule sums floating-point gradients, not {buffer.dtype}")
        index = bucket.index()
        if index == 0:
            self._learn()
        self._layout.append(buffer.numel() * buffer.element_size())
        is_known = self._known is not None and index < len(self._known) and self._known[index] == self._layout[index]
        # Later buckets belong to earlier layers. What was not there in the last step waits for all others.
        priority = len(self._known) - 1 - index if is_known else (1 << 31)
        self._average(bucket)
        entry = _Bucket(self._open().add(buffer, priority), buffer, index, self._step)
        if self._trace is not None:
            self._trace.append(entry)
        if bucket.is_last():
            self._step += 1
        return entry

    def _average(self, bucket):
        """As DDP does it where there is no hook, before the sum: it divides a gradient that lay in the bucket already, and
        multiplies one that it copies there, which rounds differently."""
        lay_there = [p for p in bucket.parameters() if p in self._gradients_at]
        if not lay_there:
            bucket.buffer().mul_(1.0 / self._size)
            return
        for parameter, view in zip(bucket.parameters(), bucket.gradients()):
            if self._gradients_at.pop(parameter, None) == view.data_ptr():
                view.div_(self._size)
            else:
                view.mul_(1.0 / self._size)

    def _watch_views(self):
        def note(parameter):
            if parameter.grad is not None:
                self._gradients_at[parameter] = parameter.grad.data_ptr()

        for parameter in self.model.parameters():
            if parameter.requires_grad:
                parameter.register_hook(lambda _gradient, parameter=parameter: note(parameter))

    def _learn(self):
        layout, self._layout = self._layout, []
        if self._tuning is not None:
            sizes = self._tuning.next_step(layout if layout == self._known else None)
            if sizes is not None:
                self._scheduler.set_sizes(*sizes)
        if layout and layout != self._known:
            self._known = layout
            self._scheduler.set_demands([(len(layout) - 1 - i, size) for i, size in enumerate(layout)])

    def _wait(self, entry, first, count):
        self._open().wait_for(entry.task, first, count)
        if entry.used_ns is None:
            entry.used_ns = time.monotonic_ns()


def _store_of(group):
    """A part of the store that is this schedule's alone."""
    _, store = dist.distributed_c10d._pg_map[group]  # that of all groups
    name = dist.distributed_c10d._pg_names[group]
    _num_schedules[group] = _num_schedules.get(group, 0) + 1
    return dist.PrefixStore(f"mlnet/schedule/{name}/{_num_schedules[group]}", store)


def _hook(state, bucket):
    """DDP's communication hook."""
    entry = state._add(bucket)
    if state._updates is None:
        return state._scheduler.future_of(entry.task, entry.buffer)
    state._updates.take(entry, bucket.parameters(), bucket.gradients())
    # DDP goes on; nobody reads the bucket before its sum is in.
    future = torch.futures.Future()
    future.set_result(entry.buffer)
    return future


class _Waiting:
    """A parameter whose gradient is being summed: element `first` and on of a bucket."""

    def __init__(self, entry, view, gradient):
        self.entry, self.view = entry, view
        self.first = view.storage_offset() - entry.buffer.storage_offset()
        self.before = (gradient, None if gradient is None else gradient._version)  # when the bucket was full
        self.gradient = self.stand_in = None  # the parameter's own, while NaN stands in for it
        self.groups = None    # the optimizer's settings when step() was called
        self.is_zeroed = False


class _DeferredUpdates:
    """Makes step() and zero_grad() of an optimizer happen parameter by parameter, when the sums are in."""

    def __init__(self, owner, optimizer):
        self.owner, self.optimizer = owner, optimizer
        self.waiting = {}  # parameter -> _Waiting
        self.entries = []  # buckets since the last finish()
        self.called = set()   # parameters whose module was called in this forward pass
        self.orphans = set()  # those whose module was not called in some pass: used by another one, or not at all
        self.late = set()     # those that turned out to be so while their sum was under way
        self.real_step, self.real_zero = type(optimizer).step, type(optimizer).zero_grad
        self.is_none_zero = inspect.signature(self.real_zero).parameters["set_to_none"].default
        self.is_known = {id(p) for group in optimizer.param_groups for p in group["params"]}
        self._replace_methods(optimizer)
        for module in owner.model.module.modules():
            own = [p for p in module.parameters(recurse=False) if p.requires_grad]
            if own:
                module.register_forward_pre_hook(lambda _module, _inputs, own=own: self._begin_module(own))
        owner.model.register_forward_pre_hook(lambda _module, _inputs: self.release([p for p in self.orphans if p in self.waiting]))
        owner.model.register_forward_hook(lambda _module, _inputs, _output: self._end_forward())
        owner.model._register_state_dict_hook(self._before_state_dict)

    def _replace_methods(self, optimizer):
        def step(closure=None):
            return self.step(closure)

        step._with_counter = True  # learning rate schedulers count in optimizer._step_count, as self.step does
        optimizer.step = step
        optimizer.zero_grad = self.zero_grad
        state_dict = optimizer.state_dict

        def synchronized_state_dict():
            self.finish()
            return state_dict()

        optimizer.state_dict = synchronized_state_dict

    def _before_state_dict(self, _module, _state, _prefix, _metadata):
        self.finish()  # what has been collected shares the parameters' memory

    def take(self, entry, parameters, views):
        self.entries.append(entry)
        for parameter, view in zip(parameters, views):
            if parameter in self.late:
                name = next(n for n, p in self.owner.model.module.named_parameters() if p is parameter)
                raise RuntimeError(f"mlnet.schedule: parameter '{name}' was used though its module was not called, other than in the passes before, "
                                   "and so before its update; call synchronize() before such a pass, or schedule without an optimizer")
            self.waiting[parameter] = _Waiting(entry, view, parameter.grad)
        if entry.index == 0:
            # Behind DDP's own, which is queued later in this backward.
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: engine.queue_callback(self._poison))

    def _poison(self):
        """After backward: whoever reads a gradient before its sum is in shall notice."""
        for parameter, waiting in list(self.waiting.items()):
            if waiting.gradient is None and self._is_left_alone(parameter, waiting):
                del self.waiting[parameter]
            elif waiting.gradient is None:
                waiting.gradient = parameter.grad
                waiting.stand_in = torch.full((), float("nan"), dtype=parameter.dtype).expand(parameter.shape)
                parameter.grad = waiting.stand_in

    def _is_left_alone(self, parameter, waiting):
        """A parameter that no rank has used keeps the gradient that it had: DDP has not written to it."""
        if parameter.grad is None:
            return True
        gradient, version = waiting.before
        is_copied = not self.owner.model.gradient_as_bucket_view
        return is_copied and parameter.grad is gradient and gradient._version == version

    def step(self, closure=None):
        if closure is not None:
            raise ValueError("mlnet.schedule: step() with a closure cannot be deferred; call synchronize() and use the optimizer as it was")
        if hasattr(self.optimizer, "_step_count"):
            self.optimizer._step_count += 1
        settings = [{key: copy.copy(value) for key, value in group.items() if key != "params"} for group in self.optimizer.param_groups]
        for parameter, waiting in self.waiting.items():
            if id(parameter) in self.is_known:
                waiting.groups = settings
        self._step_only(lambda parameter: parameter not in self.waiting, settings)

    def zero_grad(self, set_to_none=None):
        set_to_none = self.is_none_zero if set_to_none is None else set_to_none
        others = []
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                waiting = self.waiting.get(parameter)
                if waiting is not None and waiting.groups is not None:
                    waiting.is_zeroed = "none" if set_to_none else "zero"
                else:
                    others.append(parameter)
        if not self.waiting:
            self.real_zero(self.optimizer, set_to_none=set_to_none)
            return
        for parameter in others:
            self._restore(parameter)
            if parameter.grad is not None:
                _zero(parameter, set_to_none)

    def _step_only(self, is_wanted, settings):
        groups = self.optimizer.param_groups
        chosen = []
        for group, setting in zip(groups, settings):
            parameters = [p for p in group["params"] if is_wanted(p)]
            if parameters:
                chosen.append({**setting, "params": parameters})
        if not chosen:
            return
        before = [{key: copy.copy(value) for key, value in group.items() if key != "params"} for group in chosen]
        self.optimizer.param_groups = chosen
        try:
            self.real_step(self.optimizer)
        finally:
            self.optimizer.param_groups = groups
        for group, old in zip(chosen, before):
            changed = [key for key, value in old.items() if group[key] is not value and group[key] != value]
            if changed:
                raise TypeError(f"mlnet.schedule: {type(self.optimizer).__name__} changes {', '.join(changed)} of its param_groups in step(); "
                                "it cannot be deferred layer by layer")

    def _restore(self, parameter):
        """The parameter's gradient, summed, in the tensor where it always was."""
        waiting = self.waiting.pop(parameter, None)
        if waiting is None:
            return None
        self.owner._wait(waiting.entry, waiting.first, waiting.view.numel())
        if waiting.gradient is not None and parameter.grad is waiting.stand_in:  # DDP may have moved it to new buckets
            parameter.grad = waiting.gradient
        if parameter.grad is None:
            parameter.grad = waiting.view.clone()
        elif parameter.grad.data_ptr() != waiting.view.data_ptr():
            with torch.no_grad():
                parameter.grad.copy_(waiting.view)
        return waiting

    def release(self, parameters):
        """Before a module runs: its parameters, updated."""
        ready = {}
        for parameter in parameters:
            waiting = self._restore(parameter)
            if waiting is not None:
                ready[parameter] = waiting
        updated = [p for p, waiting in ready.items() if waiting.groups is not None]
        if updated:
            wanted = {id(p) for p in updated}
            self._step_only(lambda p: id(p) in wanted, ready[updated[0]].groups)
        for parameter, waiting in ready.items():
            if waiting.is_zeroed:
                _zero(parameter, waiting.is_zeroed == "none")

    def _begin_module(self, parameters):
        self.called.update(parameters)
        self.release(parameters)

    def _end_forward(self):
        if not torch.is_grad_enabled():
            return
        # With find_unused_parameters they may really have been left out.
        self.late = set() if self.owner.model.find_unused_parameters else set(self.waiting)
        self.orphans.update(p for p in self.owner.model.parameters() if p.requires_grad and p not in self.called)
        self.called.clear()
        self.finish()

    def finish(self):
        if self.waiting:
            self.release(list(self.waiting))
        # Also what nobody waits for any more: the next backward writes to the same buckets.
        for entry in self.entries:
            self.owner._wait(entry, 0, entry.buffer.numel())
        self.entries.clear()


def _zero(parameter, set_to_none):
    if set_to_none:
        parameter.grad = None
    else:
        if parameter.grad.grad_fn is not None:
            parameter.grad.detach_()
        else:
            parameter.grad.requires_grad_(False)
        parameter.grad.zero_()


def close_all():
    for each in list(_schedules):
        each.close()
