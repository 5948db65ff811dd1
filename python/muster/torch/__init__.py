"""Elastic training of PyTorch models on CPUs."""

import sys

import numpy
import torch

import muster.elastic


def __getattr__(name):
    """Import the backend only when a part of it is asked for."""
    if name == "DistributedDataParallel":
        from muster.torch.ddp import DistributedDataParallel
        return DistributedDataParallel
    raise AttributeError(f"module 'muster.torch' has no attribute {name!r}")


_NAMES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}


def _bytes_of(tensor):
    """The memory of a tensor as an array of bytes: NumPy lacks bf16."""
    return tensor.detach().view(-1).view(torch.uint8).numpy()


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

    Parameters, buffers and the optimizer's state are what a joiner is given; gradients lie in one memory that the other
    processes of the host map. Buffers (the statistics of BatchNorm) become their mean over the members before the
    update. extra, data: as in muster.Elastic; what the optimizer keeps beside tensors (the learning rate) is there already.
    seed: torch's generator is seeded by it, the step and the rank at each begin, so that dropout is the same when a
    step runs again.
    """

    def __init__(self, model, optimizer, *, extra=None, state=None, seed=0, **options):
        _check_whole(model)
        self.model, self.optimizer, self.seed = model, optimizer, seed
        self.weight = 1
        self._is_averaged = False
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        before = {id(value) for value in _tensors_of(optimizer).values()}
        _make_state(optimizer, self._parameters, before)
        arrays = dict(state or {})
        for kind, tensors in (("parameter", model.named_parameters()), ("buffer", model.named_buffers()), ("optimizer", _tensors_of(optimizer).items())):
            for name, tensor in tensors:
                if not tensor.is_contiguous() or tensor.device.type != "cpu":
                    raise ValueError(f"{kind} {name} must be contiguous and on the CPU")
                if tensor.numel() > 0:
                    arrays[f"{kind}.{name}"] = _bytes_of(tensor)
        super().__init__(arrays, extra={"torch.groups": _Groups(optimizer), **(extra or {})}, **options)
        self._members = _members_of(self)
        self._is_reduced = self._members is not None and isinstance(model, torch.nn.parallel.DistributedDataParallel)
        if self._is_reduced and self._data is not None:
            raise ValueError("Elastic(data=...) cannot be used with DistributedDataParallel: use one of them")
        self._flat = []
        if not self._is_reduced:
            self._flatten_gradients()
        buffers = [each for each in model.buffers() if each.numel() > 0]
        self._means = [each.view(-1).numpy() for each in buffers if each.dtype in (torch.float32, torch.float64)]
        self._counts = [each.view(-1).numpy() for each in buffers if each.dtype == torch.int64]
        self._hook = optimizer.register_step_pre_hook(self._before_update)

    def _flatten_gradients(self):
        """Gradients of a type lie one after the other: one operation reduces them where they are."""
        for dtype in dict.fromkeys(each.dtype for each in self._parameters):
            group = [each for each in self._parameters if each.dtype == dtype]
            count = sum(each.numel() for each in group)
            memory = self.strategy.zeros(count + self._room_of_claims(str(dtype).removeprefix("torch.")), _NAMES[dtype])
            flat = torch.frombuffer(memory, dtype=dtype)
            at = 0
            for each in group:
                each.grad = flat[at:at + each.numel()].view_as(each)
                at += each.numel()
            self._flat.append((memory, group, flat))

    def _gather_gradients(self):
        """zero_grad() may have given them up, or backward made new ones: they come back to their place."""
        for _, group, flat in self._flat:
            at = 0
            for each in group:
                place = flat[at:at + each.numel()].view_as(each)
                if each.grad is None:
                    place.zero_()
                elif each.grad.data_ptr() != place.data_ptr():
                    place.copy_(each.grad)
                each.grad = place
                at += each.numel()

    def _before_update(self, optimizer, args, kwargs):
        if not self._is_begun:
            raise RuntimeError("optimizer.step() must be inside of `with step`")
        if self._is_averaged:
            raise RuntimeError("a second optimizer.step() in one step: its update would be done twice if the step runs again")
        if self._members is not None:
            self._members.check()
        if not self._is_reduced:
            self._gather_gradients()
        if self._means:
            self.strategy.all_reduce(self._means, "mean")
        if self._counts:
            self.strategy.all_reduce(self._counts, "max")
        if self._data is not None:  # last: it moves the place in the data, and an error after it would lose its records
            self._average_claimed(numpy.asarray(self._flat[0][0]))
        elif not self._is_reduced:
            self.strategy.all_reduce_weighted([memory for memory, _, _ in self._flat], self.weight)
        self._is_averaged = True

    def rehearse(self, function, times=2):
        """Call function() as if this process were alone; gradients and buffers are then what they were. It does what a
        step does before its update. Without this the others would wait in a joiner's first step, while it imports what
        PyTorch imports late, and while DistributedDataParallel, in an elastic group, arranges its buckets."""
        if self._is_begun:
            raise RuntimeError("rehearse() must be outside of `with step`")
        buffers = [(each, each.detach().clone()) for each in self.model.buffers()]
        with torch.random.fork_rng(devices=[]):
            for _ in range(times):
                function()
        with torch.no_grad():
            for each, value in buffers:
                each.copy_(value)
        self.optimizer.zero_grad(set_to_none=False)

    def begin(self):
        super().begin()
        if self._members is not None:
            self._members.begin()
        self._is_averaged = False
        self.weight = 1
        torch.manual_seed((self.seed * 1_000_003 + self.step) * 65_536 + self.rank)

    def __exit__(self, kind, value, traceback):
        if self._members is not None and (kind is None or kind is muster.elastic._DataOver):
            try:
                self._members.end()
            except muster.Aborted as error:
                return super().__exit__(type(error), error, traceback)
        elif self._members is not None:
            self._members.drop()
        return super().__exit__(kind, value, traceback)

    def _drop_step(self):
        super()._drop_step()
        if self._members is not None:
            self._members.drop()

    def close(self):
        self._hook.remove()
        super().close()


def _check_whole(model):
    """A worker that comes back is given the members' state, so every member must have all of it."""
    for name, each in model.named_parameters():
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


def _tensors_of(optimizer):
    """The tensors of an optimizer's state, by the place of their parameter and their name."""
    found = {}
    at = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for name, value in sorted(optimizer.state.get(parameter, {}).items()):
                if torch.is_tensor(value):
                    found[f"{at}.{name}"] = value
            at += 1
    return found


def _make_state(optimizer, parameters, before):
    """Optimizers make their state in their first step: it is made here, by a step without gradients, and undone."""
    saved = [each.detach().clone() for each in parameters]
    rates = [dict(group) for group in optimizer.param_groups]
    for each in parameters:
        each.grad = torch.zeros_like(each)
    optimizer.step()
    with torch.no_grad():
        for each, value in zip(parameters, saved):
            each.copy_(value)
        for name, value in _tensors_of(optimizer).items():
            if id(value) not in before:
                value.fill_(1 if name.endswith(".mu_product") else 0)
    for group, rate in zip(optimizer.param_groups, rates):
        group.update(rate)


class _Groups:
    """The values that an optimizer keeps beside tensors: learning rates and the like."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def state_dict(self):
        return [{key: value for key, value in group.items() if key != "params" and isinstance(value, (int, float, bool, tuple))}
                for group in self.optimizer.param_groups]

    def load_state_dict(self, groups):
        for group, values in zip(self.optimizer.param_groups, groups):
            group.update(values)

