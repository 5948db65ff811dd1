"""What PyTorch's optimizers keep for each parameter, as arrays that a joiner can be given."""

import copy

import torch

_PLAIN = (int, float, bool, str, type(None))


def parameters_of(optimizer):
    """Its parameters, in the order of its groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class Groups:
    """The values that optimizers keep beside the state of parameters: learning rates and the like."""

    def __init__(self, optimizers):
        self._optimizers = optimizers

    @property
    def _groups(self):
        """Those of now: optimizer.load_state_dict() makes new ones."""
        return [group for each in self._optimizers for group in each.param_groups]

    def state_dict(self):
        return [{key: value.item() if torch.is_tensor(value) else value for key, value in group.items() if key != "params" and _is_given(value)}
                for group in self._groups]

    def load_state_dict(self, saved):
        for group, values in zip(self._groups, saved):
            for key, value in values.items():
                if torch.is_tensor(group.get(key)):
                    group[key].fill_(value)
                else:
                    group[key] = value


def _is_given(value):
    return isinstance(value, (int, float, bool, tuple)) or torch.is_tensor(value) and value.numel() == 1


class State:
    """The state of some optimizers, in tensors that stay where they are.

    PyTorch's optimizers make their state in their first update, each in its own way, but what a joiner is given must be
    known before the first begin. So one update without gradients shows which tensors there will be, and is undone. The
    optimizer has what it had before until its first real update; what that makes is moved into these tensors.

    optimizers: by the name of what belongs to each of them.
    """

    def __init__(self, optimizers):
        self._places = {optimizer: [] for optimizer in optimizers.values()}  # (name, parameter, key, tensor)
        self._plain = []  # (name, optimizer, parameter, key): what is not a tensor
        self._fresh = set()  # names of what the optimizer has not made yet
        self._undo = []
        for prefix, optimizer in optimizers.items():
            before = _take(optimizer)
            _update_once(optimizer)
            self._keep(prefix, optimizer, before)
            _put(optimizer, before)

    def tensors(self):
        """By name."""
        return {name: tensor for places in self._places.values() for name, _, _, tensor in places}

    def _keep(self, prefix, optimizer, before):
        for at, parameter in enumerate(parameters_of(optimizer)):
            had = before[parameter][0]
            for key, value in sorted(optimizer.state.get(parameter, {}).items()):
                name = f"{prefix}.{at}.{key}"
                if torch.is_tensor(value):
                    kept = had.get(key)
                    self._places[optimizer].append((name, parameter, key, torch.zeros_like(value).contiguous() if kept is None else kept))
                    if kept is None:
                        self._fresh.add(name)
                elif isinstance(value, _PLAIN):
                    self._plain.append((name, optimizer, parameter, key))
                else:
                    raise NotImplementedError(
                        f"{type(optimizer).__name__} cannot be used in an Elastic: it keeps {key!r}, a {type(value).__name__}, for a "
                        "parameter, and a joiner can be given tensors and numbers only; use an optimizer of these, such as AdamW")

    def adopt(self, optimizer):
        """After an update: what the optimizer has made, or put in place of what it had, is moved to where it is kept."""
        was_fresh = len(self._fresh)
        for name, parameter, key, tensor in self._places[optimizer]:
            values = optimizer.state.get(parameter, {})
            value = values.get(key)
            if value is tensor or value is None:
                continue
            if value.shape != tensor.shape or value.dtype != tensor.dtype:
                raise RuntimeError(f"{type(optimizer).__name__} must keep {name} as it was in an update without gradients, {tensor.dtype} of "
                                   f"shape {tuple(tensor.shape)}, got {value.dtype} of shape {tuple(value.shape)}: use another optimizer")
            with torch.no_grad():
                tensor.copy_(value)
            values[key] = tensor
            self._fresh.discard(name)
        if len(self._fresh) < was_fresh:
            self._check_known(optimizer)

    def _check_known(self, optimizer):
        known = {(parameter, key) for _, parameter, key, _ in self._places[optimizer]}
        known |= {(parameter, key) for _, each, parameter, key in self._plain if each is optimizer}
        for parameter in parameters_of(optimizer):
            for key in optimizer.state.get(parameter, {}):
                if (parameter, key) not in known:
                    raise RuntimeError(f"{type(optimizer).__name__} keeps {key!r} since its first update with gradients, and did not after one "
                                       "without: joiners cannot be given it; use another optimizer")

    # --- a step that runs again ---

    def note(self, optimizer):
        """Before an update behind which operations follow: what it changes is kept until the step is over."""
        if not self._undo:
            self._before = copy.deepcopy(self.state_dict())
        for tensor in [*parameters_of(optimizer), *(each[3] for each in self._places[optimizer])]:
            self._undo.append((tensor, tensor.detach().clone()))

    def undo(self):
        """Parameters and tensors are again what they were before the updates of the step."""
        with torch.no_grad():
            for tensor, value in reversed(self._undo):
                tensor.copy_(value)
        if self._undo:  # what an optimizer made in its first update is not there, either
            self.load_state_dict(self._before)
        self.forget()

    def forget(self):
        self._undo = []

    # --- for extra ---

    def state_dict(self):
        plain = {name: values[key] for name, optimizer, parameter, key in self._plain
                 if key in (values := optimizer.state.get(parameter, {}))}
        return {"fresh": sorted(self._fresh), "plain": plain}

    def load_state_dict(self, saved):
        self._fresh = set(saved["fresh"])
        made = [(optimizer, parameter, key, tensor, name not in self._fresh) for optimizer, places in self._places.items()
                for name, parameter, key, tensor in places]
        made += [(optimizer, parameter, key, saved["plain"].get(name), name in saved["plain"]) for name, optimizer, parameter, key in self._plain]
        for optimizer, parameter, key, value, is_made in made:
            if is_made:
                optimizer.state[parameter][key] = value
            elif parameter in optimizer.state:
                optimizer.state[parameter].pop(key, None)
        for optimizer in self._places:  # they make what is empty
            for parameter in [each for each, values in optimizer.state.items() if not values]:
                del optimizer.state[parameter]


def _take(optimizer):
    """Each parameter's state, the values of its tensors, its own value and its gradient."""
    taken = {}
    for parameter in parameters_of(optimizer):
        had = {key: value if torch.is_tensor(value) else copy.deepcopy(value) for key, value in optimizer.state.get(parameter, {}).items()}
        values = {key: value.detach().clone() for key, value in had.items() if torch.is_tensor(value)}
        taken[parameter] = (had, values, parameter.detach().clone(), parameter.grad)
    return taken


def _put(optimizer, taken):
    with torch.no_grad():
        for parameter, (had, values, value, gradient) in taken.items():
            parameter.copy_(value)
            parameter.grad = gradient
            for key, each in values.items():
                had[key].copy_(each)
            optimizer.state.pop(parameter, None)
            if had:
                optimizer.state[parameter] = had


def _update_once(optimizer):
    """With gradients of zero. Values of its groups stay as they were."""
    groups = [{key: value.clone() if torch.is_tensor(value) else value for key, value in group.items() if key != "params"}
              for group in optimizer.param_groups]
    for parameter in parameters_of(optimizer):
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    try:
        optimizer.step()
    except (RuntimeError, TypeError, ValueError) as error:
        raise NotImplementedError(
            f"{type(optimizer).__name__} cannot be used in an Elastic, which must know its state before the first begin: an update with dense "
            f"gradients of zero and without a closure fails ({error}); use an optimizer that can do one, such as AdamW") from error
    for group, values in zip(optimizer.param_groups, groups):
        for key, value in values.items():
            if torch.is_tensor(value) and torch.is_tensor(group.get(key)):
                group[key].copy_(value)
            else:
                group[key] = value
