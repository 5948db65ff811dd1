"""Elastic training of PyTorch models on CPUs."""

import importlib
import operator
import sys
import weakref

import numpy
import torch

import muster.elastic
from muster.torch.optimizers import Groups, State, parameters_of
from muster.torch.slots import Parts, bytes_of


def __getattr__(name):
    """Import the backend only when a part of it is asked for."""
    if name == "DistributedDataParallel":
        from muster.torch.ddp import DistributedDataParallel
        return DistributedDataParallel
    if name == "backend":
        return importlib.import_module("muster.torch.backend")
    if name == "init_process_group":
        from muster.torch.backend import init_process_group
        return init_process_group
    raise AttributeError(f"module 'muster.torch' has no attribute {name!r}")


_NAMES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}


class Elastic(muster.elastic.Elastic):
    """The loop of a program that trains a model: see muster.Elastic.

        elastic = muster.torch.Elastic(model, optimizer, extra={"schedule": schedule})
        for step in elastic.steps(1000):
            with step:
                pick = torch.randint(len(X), (32,), generator=seeded(step.step))[step.rank::step.size]
                optimizer.zero_grad(set_to_none=False)
                loss = F.cross_entropy(model(X[pick]), Y[pick])
                loss.backward()
                step.weight = len(pick)
                optimizer.step()                # the mean of gradients, then the update; then `with` commits
                schedule.step()
        elastic.close()

    Parameters, buffers and the optimizer's state are what a joiner is given; gradients lie in one memory that the
    other processes of the host map. Buffers (the statistics of BatchNorm) become their mean over the members before
    the update; they are copied at begin, so that a step that runs again counts once in them. extra, data: as in
    muster.Elastic; what the optimizer keeps beside tensors (the learning rate) is there already.
    seed: torch's generator is seeded by it, the step and the rank at each begin, so that dropout is the same when a
    step runs again.

    slots: as in muster.Elastic. Each slot begins without gradients, with the buffers that the step began with, and with a
    seed of its own; backward() may come several times in it:

        for step in elastic.steps(1000):
            with step:
                for slot in step.slots:
                    x, y = batch_of(step.step, slot)
                    F.cross_entropy(model(x), y).backward()
                    step.add(weight=len(x))
                optimizer.step()                # the mean over all examples of all slots, then the update

    Buffers of floats become the mean over the slots as well, others (counters) those of slot 0.

    optimizer: one, or a list of them, each for its own parameters of the model (a GAN: model =
    torch.nn.ModuleList([generator, discriminator])). A step has one update of each, in any order. All but the last one
    are copied first, since operations come behind them: a step that runs again undoes them.

    A parameter without a gradient on all members (grad is None) is left alone by the update, as without muster. What looks
    at gradients between backward() and the update, such as clip_grad_norm_, comes behind step.average().
    """

    def __init__(self, model, optimizer, *, extra=None, state=None, seed=0, **options):
        optimizers = _check_optimizers(model, optimizer, options.get("data"))
        _check_whole(model)
        muster.elastic._check_dictionaries(state=state, extra=extra)
        self.model, self.optimizer, self.seed = model, optimizer, operator.index(seed)
        self._weight = 1
        self._optimizers, self._updated, self._averaged = optimizers, [], set()
        self._state = State({f"optimizer{i or ''}": each for i, each in enumerate(optimizers)})
        arrays = dict(state or {})
        kinds = [("parameter.", model.named_parameters()), ("buffer.", model.named_buffers()), ("", self._state.tensors().items())]
        for kind, tensors in kinds:
            for name, tensor in tensors:
                if not tensor.is_contiguous() or tensor.device.type != "cpu":
                    raise ValueError(f"{kind.replace('.', ' ')}{name} must be contiguous (not channels_last) and on the CPU, got strides "
                                     f"{tensor.stride()} on {tensor.device}")
                if tensor.numel() > 0:
                    arrays[f"{kind}{name}"] = bytes_of(tensor)
        ours = {"torch.groups": Groups(optimizers), "torch.state": self._state}
        super().__init__(arrays, extra={**ours, **(extra or {})}, **options)
        self._members = _members_of(self)
        self._is_reduced = self._members is not None and isinstance(model, torch.nn.parallel.DistributedDataParallel)
        if self._is_reduced and self._data is not None:
            raise ValueError("Elastic(data=...) cannot be used with DistributedDataParallel: use one of them")
        if self._slots is not None and any(isinstance(each, torch.nn.parallel.DistributedDataParallel) for each in model.modules()):
            raise ValueError("Elastic(slots=…) cannot be used with DistributedDataParallel, which sums the gradients of the members and not of "
                             "the slots: give the Elastic the module itself")
        trained = [each for each in model.parameters() if each.requires_grad]
        self._flat = {each: [] for each in optimizers}
        if self._slots is not None:
            self._parts = Parts(trained, [each for each in model.buffers() if each.numel() > 0])
        elif not self._is_reduced:
            self._flatten_gradients(trained)
        self._placed = set(trained) if not self._is_reduced else set()
        self._is_watched = False
        self._counts_of = {each: len(parameters_of(each)) for each in optimizers}
        buffers = [each for each in model.buffers() if each.numel() > 0]
        self._means = [each.view(-1).numpy() for each in buffers if each.dtype in (torch.float32, torch.float64)]
        self._counts = [each.view(-1).numpy() for each in buffers if each.dtype == torch.int64]
        self._kept = [(each, each.detach().clone()) for each in buffers]  # as of begin
        self._hooks = [each.register_step_pre_hook(self._before_update) for each in optimizers]
        self._hooks += [each.register_step_post_hook(self._after_update) for each in optimizers]
        _owners.update((each, weakref.ref(self)) for each in optimizers)

    @property
    def weight(self):
        """How many examples this member's gradients are of, in the step: 1 at its begin."""
        return self._weight

    @weight.setter
    def weight(self, value):
        self._weight = muster.elastic._weight_of(value)

    def _flatten_gradients(self, trained):
        """Gradients of a type and an optimizer lie one after the other: one operation reduces them where they are. Those
        of no optimizer go with the first one's."""
        taken = set()
        for optimizer in reversed(self._optimizers):
            own = set(parameters_of(optimizer))
            parameters = [each for each in trained if each in own] if optimizer is not self._optimizers[0] \
                else [each for each in trained if each not in taken]
            taken |= own
            for dtype in dict.fromkeys(each.dtype for each in parameters):
                self._flatten(optimizer, dtype, [each for each in parameters if each.dtype == dtype])

    def _flatten(self, optimizer, dtype, group):
        """Behind the gradients is a number for each: whether this member has it, and after the mean whether any has."""
        count = sum(each.numel() for each in group)
        memory = self.strategy.zeros(count + len(group) + self._room_of_claims(str(dtype).removeprefix("torch.")), _NAMES[dtype])
        flat = torch.frombuffer(memory, dtype=dtype)
        self._flat[optimizer].append((memory, group, flat[:count], flat[count:count + len(group)]))

    def _gather_gradients(self, optimizer):
        """zero_grad() may have given them up, or backward made new ones: they come back to their place."""
        for _, group, flat, given in self._flat[optimizer]:
            given.copy_(torch.tensor([each.grad is not None for each in group]))
            at = 0
            for each in group:
                place = flat[at:at + each.numel()].view_as(each)
                if each.grad is None:
                    place.zero_()
                elif self._check_dense(each).data_ptr() != place.data_ptr():
                    place.copy_(each.grad)
                each.grad = place
                at += each.numel()

    def _drop_ungiven(self, optimizer):
        """Updates pass by what no member has a gradient of, as PyTorch's do."""
        for _, group, _, given in self._flat[optimizer]:
            for each, share in zip(group, given.tolist()):
                if share == 0:
                    each.grad = None

    def _name_of(self, parameter):
        return next((name for name, each in self.model.named_parameters() if each is parameter), "of another module")

    def _check_dense(self, parameter):
        """Its gradient."""
        if parameter.grad.layout is not torch.strided:
            raise NotImplementedError(f"parameter {self._name_of(parameter)} has a gradient of layout {parameter.grad.layout}, and only dense "
                                      "ones are averaged: make its module without sparse=True")
        return parameter.grad

    def _check_placed(self, optimizer):
        """A gradient that has no place would stay this member's own."""
        for each in parameters_of(optimizer):
            if each.grad is not None and each not in self._placed:
                raise RuntimeError(f"parameter {self._name_of(each)} has a gradient, and had requires_grad=False, or was not "
                                   "the optimizer's, when the Elastic was made: the members would not average it; set requires_grad before, "
                                   "and freeze it by requires_grad=False afterwards")

    def _check_update(self, optimizer, args, kwargs):
        if not self._is_begun:
            raise RuntimeError("optimizer.step() must be inside of `with step`")
        count = len(parameters_of(optimizer))
        if count != self._counts_of[optimizer]:
            raise RuntimeError(f"optimizer {self._optimizers.index(optimizer)} ({type(optimizer).__name__}) must keep its "
                               f"{self._counts_of[optimizer]} parameters, got {count}: add parameter groups before the Elastic is made")
        if optimizer in self._updated:
            raise RuntimeError("a second optimizer.step() in one step: its update would be done twice if the step runs again")
        if len(args) > 1 or kwargs.get("closure") is not None:
            raise TypeError("optimizer.step() must be without a closure, whose gradients would come behind their mean over the members: "
                            "call backward() before it")

    def _reduce(self, optimizer):
        """Buffers, and the gradients of the optimizer, become those of all members. With slots: of all slots."""
        if self._slots is not None:
            self._average_slots()
            return
        if not self._is_reduced:
            self._check_placed(optimizer)
            self._gather_gradients(optimizer)
        if self._means:
            self.strategy.all_reduce(self._means, "mean")
        if self._counts:
            self.strategy.all_reduce(self._counts, "max")
        if self._data is not None:  # last: it moves the place in the data, and an error after it would lose its records
            self._average_claimed(numpy.asarray(self._flat[optimizer][0][0]))
        elif not self._is_reduced:
            self.strategy.all_reduce_weighted([memory for memory, *_ in self._flat[optimizer]], self.weight)
        if not self._is_reduced:
            self._drop_ungiven(optimizer)

    def average(self, arrays=None, weight=None):
        """Gradients become their mean over the members now, and not by optimizer.step(): for what looks at them between
        backward() and the update, such as clip_grad_norm_ or a GradScaler. weight: step.weight. With arrays: as in
        muster.Elastic. With slots: the mean over all slots, without arguments."""
        if self._slots is not None:
            self._check_slots("step.average()")
            self._check_plain(arrays, weight is not None)
            self._average_slots()
            return
        if arrays is not None:
            super().average(arrays, 1 if weight is None else weight)
            return
        if not self._is_begun:
            raise RuntimeError("step.average() must be inside of `with step`")
        if weight is not None:
            self.weight = weight
        if self._members is not None:
            self._members.check()
        for each in self._optimizers:
            if each not in self._updated and each not in self._averaged:
                self._reduce(each)
                self._averaged.add(each)
        self._watch_gradients()

    def _watch_gradients(self):
        """What a further backward() adds to gradients that have been averaged is averaged again, by the update; with slots
        it is refused."""
        for optimizer, flats in self._flat.items() if not self._is_watched else ():
            group = self._placed if self._slots is not None else [each for _, group, *_ in flats for each in group]

            def forget(_, optimizer=optimizer):
                self._averaged.discard(optimizer)
            self._hooks += [each.register_post_accumulate_grad_hook(forget) for each in group]
        self._is_watched = True

    def _before_update(self, optimizer, args, kwargs):
        self._check_update(optimizer, args, kwargs)
        if self._members is not None:
            self._members.check()
        if optimizer not in self._averaged:
            self._reduce(optimizer)
        self._updated.append(optimizer)
        if len(self._updated) < len(self._optimizers) or (self._members is not None and self._members.mail.has_sendings):
            self._state.note(optimizer)

    def _after_update(self, optimizer, args, kwargs):
        self._state.adopt(optimizer)

    # --- slots ---

    def _measure_slot(self):
        means, sums, is_wide = super()._measure_slot()
        return means + self._parts.means, sums + self._parts.sums, is_wide or self._parts.is_wide

    def _enter_slots(self):
        if len(self._updated) == len(self._optimizers):
            raise RuntimeError("step.slots must come before the last optimizer.step() of a step, whose update cannot be undone if the step runs "
                               "again")
        self._averaged = set()
        self._parts.begin()

    def _enter_slot(self, slot):
        self._parts.restore()
        self._parts.drop_gradients()
        self._weight = 1
        self._seed_slot(slot)

    def _leave_slots(self):
        """Behind them all members are alike again."""
        self._parts.restore()
        self._seed_slot(self._slots.count)

    def _seed_slot(self, slot):
        seeds = numpy.random.SeedSequence([abs(self.seed), self.seed < 0, self.step, self._slots.round, slot])
        torch.manual_seed(int(seeds.generate_state(1, numpy.uint64)[0]))

    def _weight_of_slot(self):
        return self._weight if self._data is None else super()._weight_of_slot()

    def _fill_slot(self, weight):
        for each in self._optimizers:
            self._check_placed(each)
        for each in self._placed:
            if each.grad is not None:
                self._check_dense(each)
        at = super()._fill_slot(weight)
        self._parts.fill(self._slots.means[at:], self._slots.sums, self._slots.current == 0, weight)
        self._parts.drop_gradients()
        return at

    def _average_slots(self):
        if self._slots.has_mean and not self._averaged.issuperset(set(self._optimizers) - set(self._updated)):
            raise RuntimeError("a gradient was made behind the mean over the slots, and would not be in it: call backward() inside of `for slot in "
                               "step.slots`, and go through the slots once more for gradients that need an update before them")
        self._slots.check_sum()
        if self._parts.has_gradients():
            raise RuntimeError("a gradient was made behind `for slot in step.slots`, and would not be in the mean over the slots: call backward() "
                               "inside of the loop, before step.add()")
        if self._members is not None:
            self._members.check()
        super()._average_slots()
        self._averaged = set(self._optimizers)
        self._watch_gradients()

    def _take_mean(self):
        at = super()._take_mean()
        self._parts.take(self._slots.means[at:], self._slots.sums)
        return at

    def rehearse(self, function, times=2):
        """Call function() as if this process were alone; gradients and buffers are then what they were. It does what a
        step does before its update. Without this the others would wait in a joiner's first step, while it imports what
        PyTorch imports late, and while DistributedDataParallel, in an elastic group, arranges its buckets."""
        if self._is_begun:
            raise RuntimeError("rehearse() must be outside of `with step`")
        buffers = [(each, each.detach().clone()) for each in self.model.buffers()]
        gradients = [(each, None if each.grad is None else each.grad.clone()) for each in self.model.parameters()]
        with torch.random.fork_rng(devices=[]):
            for _ in range(times):
                function()
        with torch.no_grad():
            for each, value in buffers:
                each.copy_(value)
        for each, gradient in gradients:
            each.grad = gradient

    def _begin(self, until=None):
        self._updated, self._averaged = [], set()
        self._state.forget()
        if not super()._begin(until):
            return False
        if self._members is not None:
            self._members.begin()
        with torch.no_grad():
            for each, kept in self._kept:
                kept.copy_(each)
        self.weight = 1
        if self._slots is not None:
            self._seed_slot(self._slots.count)
        else:
            torch.manual_seed((self.seed * 1_000_003 + self.step) * 65_536 + self.rank)
        return True

    def _adopt(self):
        for each in self._optimizers:
            self._state.adopt(each)
        super()._adopt()

    def _undo(self):
        """Parameters, their optimizers and buffers are again what they were at begin."""
        self._state.undo()
        with torch.no_grad():
            for each, kept in self._kept:
                each.copy_(kept)

    def __exit__(self, kind, value, traceback):
        kind = self._end_of(kind)
        if kind is not None and issubclass(kind, muster.Aborted):
            self._undo()
        if self._members is not None and (kind is None or kind is muster.elastic._DataOver):
            try:
                self._members.end()
            except muster.Aborted as error:
                self._undo()
                return super().__exit__(type(error), error, traceback)
        elif self._members is not None:
            self._members.drop()
        return super().__exit__(kind, value, traceback)

    def _drop_step(self):
        super()._drop_step()
        if self._members is not None:
            self._members.drop()

    def close(self):
        for each in self._hooks:
            each.remove()
        for each in self._optimizers:
            _owners.pop(each, None)
        super().close()


_owners = weakref.WeakKeyDictionary()  # of optimizers: the Elastic whose updates theirs are


def _check_optimizers(model, optimizer, data):
    """The optimizers as a list: each has parameters of the model, and none of another one's."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}: put several into a torch.nn.ModuleList")
    optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    if not optimizers:
        raise ValueError("optimizer must be a torch.optim.Optimizer, or a list of them, got an empty list")
    owners, names = {}, {each: name for name, each in model.named_parameters()}
    for i, each in enumerate(optimizers):
        if not isinstance(each, torch.optim.Optimizer):
            raise TypeError(f"optimizer must be a torch.optim.Optimizer, or a list of them, got {type(each).__name__}")
        owner = _owners[each]() if each in _owners else None
        if owner is not None and not owner.strategy.closed:
            raise RuntimeError(f"optimizer {i} ({type(each).__name__}) belongs to an Elastic that is not closed: call its close() first")
        for at, parameter in enumerate(parameters_of(each)):
            if parameter not in names:
                raise ValueError(f"parameter {at} of optimizer {i} ({type(each).__name__}), of shape {tuple(parameter.shape)}, is not one of "
                                 "the model: give the modules of all optimizers as one model, torch.nn.ModuleList([…])")
            if owners.setdefault(parameter, i) != i:
                raise ValueError(f"parameter {names[parameter]} must have one optimizer, got two ({owners[parameter]} and {i} of the list): "
                                 "leave it out of one of them")
    if data is not None and len(optimizers) > 1:
        raise ValueError(f"Elastic(data=…) must have one optimizer, got {len(optimizers)}: the records of a step are counted with one update; "
                         "take the share of the data from step.step, step.rank and step.size")
    return optimizers


def _check_whole(model):
    """A worker that comes back is given the members' state, so every member must have all of it."""
    for name, each in model.named_parameters():
        if each.requires_grad and each.dtype not in _NAMES:
            raise NotImplementedError(f"parameter {name} must be of float32, float64, float16 or bfloat16 to be trained, got {each.dtype}: "
                                      "keep its parts as real numbers (torch.view_as_complex of them in forward()), or freeze it")
        if hasattr(each, "device_mesh"):
            raise NotImplementedError(
                f"each worker of an Elastic must have the whole model, got a part of parameter {name} (a DTensor, as fully_shard "
                "makes them): use DistributedDataParallel, or FSDP2 without Elastic on a fixed number of workers")


def _members_of(elastic):
    """What the c10d group is told of the steps, if the program has made one that is elastic."""
    backend = sys.modules.get("muster.torch.backend")
    members = backend.members_of_step() if backend is not None else None
    if members is not None:
        members.elastic = elastic
    return members
