"""The loop of a program that trains on NumPy arrays while workers die and come back."""

import io
import math
import numbers
import operator
import os
import pickle
import random
import sys

import numpy

import muster
from muster.slots import slots_of

EXIT_PREEMPTED = 42  # include/muster/strategy_preemption.h


def _is_torch(value, kind):
    """Whether the value is a Tensor, or a Generator, of PyTorch, which this module does not import."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, kind))


def _tensor_of(array, dtype, shape, needs_gradient, is_parameter):
    torch = sys.modules["torch"]
    tensor = torch.from_numpy(array.copy()).view(getattr(torch, dtype)) if array.size > 0 else torch.empty(0, dtype=getattr(torch, dtype))
    tensor = tensor.reshape(shape)
    return torch.nn.Parameter(tensor, needs_gradient) if is_parameter else tensor.requires_grad_(needs_gradient)


def _generator_of(state):
    generator = sys.modules["torch"].Generator()
    generator.set_state(state)
    return generator


class _Pickler(pickle.Pickler):
    """PyTorch's own bytes of a tensor have the address of its memory inside."""

    def reducer_override(self, value):
        if _is_torch(value, "Generator") and value.device.type == "cpu":
            return _generator_of, (value.get_state(),)
        if not _is_torch(value, "Tensor") or not _is_plain(value):
            return NotImplemented
        torch = sys.modules["torch"]
        array = value.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8).numpy()
        is_parameter = type(value) is torch.nn.Parameter
        return _tensor_of, (array, str(value.dtype).removeprefix("torch."), tuple(value.shape), value.requires_grad, is_parameter)


def _is_plain(tensor):
    torch = sys.modules["torch"]
    return (type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and tensor.device.type == "cpu"
            and not tensor.is_quantized)


def _dump(value):
    """Bytes that depend on the value alone, and not on which of its parts are one object: all members' must be equal."""
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=4)
    pickler.fast = True
    pickler.dump(value)
    return file.getvalue()


def _can_dump(value):
    try:
        _dump(value)
    except Exception:
        return False
    return True


def _culprit_of(value, path, depth=8):
    """The innermost part of a value that cannot be pickled: where it is, and itself. A value may hold itself."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, each in parts if depth > 0 else ():
        if not _can_dump(each):
            return _culprit_of(each, f"{path}[{key!r}]", depth - 1)
    return path, value


def _dump_all(values):
    """The bytes of all extra state; an error names the part that has none."""
    try:
        return _dump(values)
    except Exception as error:
        name, value = next((each for each in values.items() if not _can_dump(each[1])), ("", values))
        path, culprit = _culprit_of(value, f"extra {name!r}")
        kind = f"{type(culprit).__module__}.{type(culprit).__qualname__}"
        raise TypeError(f"{path} must be something that can be pickled, got a {kind} ({error}); keep it outside of extra, or leave it "
                        "out of state_dict()") from error


def _state_of(name, extra):
    if hasattr(extra, "state_dict"):
        return extra.state_dict()
    if isinstance(extra, numpy.random.Generator):
        return extra.bit_generator.state
    if hasattr(extra, "getstate"):  # random.Random
        return extra.getstate()
    if isinstance(extra, dict) or _has_plain_state(extra):
        return extra
    raise TypeError(f"extra {name!r} must have state_dict() and load_state_dict(), or be a generator of random numbers or a dict")


def _has_plain_state(extra):
    """A generator that _set_inside knows."""
    return isinstance(extra, numpy.random.RandomState) or _is_torch(extra, "Generator")


def _set_state(extra, value):
    if hasattr(extra, "load_state_dict"):
        extra.load_state_dict(value)
    elif isinstance(extra, numpy.random.Generator):
        extra.bit_generator.state = value
    elif isinstance(extra, dict) or _has_plain_state(extra):
        _set_inside(extra, value, {})
    else:
        extra.setstate(value)


def _set_inside(old, new, seen):
    """Give old the state of new, in place where old allows that, since the program may hold old itself. Returns what has the state:
    old, or an object in its place. seen: what new gave its state to each object that was set, by the object's id."""
    if type(old) is not type(new):
        return new
    if id(old) in seen:  # it is held twice, or holds itself; new may have two objects there
        return old if seen[id(old)] is new else new
    if isinstance(old, tuple):
        values = _values_inside(old, new, seen)
        if len(old) == len(values) and all(map(operator.is_, old, values)):
            return old
        return tuple(values) if type(old) is tuple else new
    seen[id(old)] = new
    if isinstance(old, dict):
        values = {key: _set_inside(old[key], each, seen) if key in old else each for key, each in new.items()}
        old.clear()
        old.update(values)
    elif isinstance(old, list):
        old[:] = _values_inside(old, new, seen)
    elif isinstance(old, numpy.random.Generator) and type(old.bit_generator) is type(new.bit_generator):
        old.bit_generator.state = new.bit_generator.state
    elif isinstance(old, numpy.random.BitGenerator):
        old.state = new.state
    elif isinstance(old, numpy.random.RandomState):
        old.set_state(new.get_state(legacy=False))
    elif isinstance(old, random.Random):
        old.setstate(new.getstate())
    elif isinstance(old, numpy.ndarray) and old.dtype == new.dtype and old.shape == new.shape and old.flags.writeable:
        old[...] = new
    elif _is_torch(old, "Generator"):
        old.set_state(new.get_state())
    elif _is_torch(old, "Tensor") and old.dtype == new.dtype and old.shape == new.shape:
        old.detach().copy_(new)
    elif hasattr(old, "state_dict") and hasattr(old, "load_state_dict"):
        old.load_state_dict(new.state_dict())
    else:
        del seen[id(old)]  # a number or a text may stand in other places, where new has another one
        return new
    return old


def _values_inside(old, new, seen):
    return [_set_inside(*pair, seen) for pair in zip(old, new)] + list(new[len(old):])


def _generators_in(value):
    """The generators of random numbers in dictionaries and lists of any depth. A value may hold itself."""
    found, left, seen = [], [value], set()
    while left:
        each = left.pop()
        if isinstance(each, (numpy.random.Generator, numpy.random.BitGenerator, numpy.random.RandomState, random.Random)) \
                or _is_torch(each, "Generator"):
            found.append(each)
        elif isinstance(each, (dict, list, tuple)) and id(each) not in seen:
            seen.add(id(each))
            left.extend(each.values() if isinstance(each, dict) else each)
    return found


def _check_dictionaries(**values):
    for name, value in values.items():
        if value is not None and not isinstance(value, dict):
            raise TypeError(f"{name} must be a dictionary, whose keys name its parts, got {type(value).__name__}")


def _weight_of(value):
    """A member's weight in a mean: how many examples its share has."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise ValueError(f"a weight must be a whole number of examples, from 0 on, got {value!r}")
    return number


class _DataOver(Exception):
    """All passes over the data are done."""


class Elastic:
    """Steps that all members of a job do together.

        elastic = muster.Elastic({"weights": weights}, extra={"order": order})
        gradient, = elastic.buffers([weights])
        for step in elastic.steps(1000):
            with step:                                      # begin: waits, joins, restores
                pick = order.pick(step.step)[step.rank::step.size]
                gradient[:] = gradient_of(weights, pick)
                step.average(weight=len(pick))              # the mean over all examples, however they are shared out
                weights -= 0.1 * gradient                   # after the last operation of the step
        elastic.close()                                     # commit is at the end of `with`

    state: the arrays that a joiner is given, by name; their memory stays the same from now on. All members of a new
    job begin with those of rank 0.

    extra: state that is not an array, by name: objects with state_dict() and load_state_dict(), generators of random
    numbers (numpy's, random.Random), dicts. They are pickled into a part of the state at each commit, 8 MiB at
    most. A member loads them when it is given the state, and when a step runs again.

    data: a dataset of muster.data. step.share() is this member's part of the step, and average() the mean over the
    records of all, by which the place in the data moves. steps() ends after the last pass.

    slots: cut each step into so many parts, which the members share out; None: as many as `muster run
    --constant-batch` says. The mean over the slots, and so the state after each step, is the same bit by bit with any
    number of members, and after any deaths:

        elastic = muster.Elastic({"weights": weights}, slots=8)
        gradient, = elastic.buffers([weights])          # before the first step
        for step in elastic.steps(1000):
            with step:
                for slot in step.slots:                 # this member's; with data step.share() is the slot's
                    pick = pick_of(step.step, slot)
                    gradient[:] = gradient_of(weights, pick)
                    step.add(weight=len(pick))
                step.average()                          # over all examples of all slots
                weights -= 0.1 * gradient

    What a slot gives must follow from the state, the step and the slot, and what all do must follow from that and
    from means: not from rank, size, or a generator of extra that is drawn from inside of the slots.

    checkpoint: a folder that all members see; a new job begins with the newest checkpoint there, and every `every`
    steps one is written, and one of the last step, of which `keep` stay. It is what `muster run --checkpoint-dir` would be;
    beside that one this folder gets none of the last step.

    An operation that ends with muster.Aborted ends the `with` and runs the step again. Another exception out of it
    ends this member; the others go on, and `muster run` starts it again. A worker that comes back when
    the job is over, or learns of it in a step, ends its program with exit code 0. Options are those of muster.Strategy.
    """

    def __init__(self, state, *, extra=None, data=None, slots=0, checkpoint=None, every=100, keep=2, **options):
        if not isinstance(every, int) or every < 1:
            raise ValueError(f"every must be a number of steps from 1 on, got {every!r}")
        _check_dictionaries(state=state, extra=extra)
        if data is not None and not isinstance(data, muster.data.Dataset):
            raise TypeError(f"data must be a dataset of muster.data, such as muster.data.numbers(len(records), batch=32), got {type(data).__name__}")
        is_second = bool(os.environ.get("MUSTER_CHECKPOINT_DIR"))  # the library writes to one folder by itself: the launcher's
        if checkpoint is not None and not os.fspath(checkpoint):
            raise ValueError("checkpoint must be a folder, or None for no checkpoints, got ''")
        if checkpoint is not None and not is_second:
            options |= {"checkpoint_dir": os.path.abspath(checkpoint), "checkpoint_every": str(every), "checkpoint_keep": keep}
        self.strategy = muster.Strategy(**options)
        self._slots = slots_of(slots)
        self._extra = dict(extra or {})
        self._checkpoint, self._every, self._keep = checkpoint if is_second else None, every, keep
        self._committed = 0
        self._is_begun = self._has_state = self._was_begun = False
        self._buffers = []
        self._data, self._shared, self._is_over = data, None, False
        self._until = math.inf
        # The step whose stop() has ended the job; negative: the last one with records, after which the data was over; 0: neither.
        self._last, self._is_last = numpy.zeros(1, numpy.int64), False
        try:
            self._register(state)
        except muster.JobOver:
            self._end_late()

    def _register(self, state):
        for name, array in state.items():
            self.strategy.register(name, array)
        self.strategy.register("muster.last", self._last)
        if self._data is not None:
            # Its name has what the order of the records follows from: members that differ there, or a checkpoint, are told so.
            self.strategy.register(f"muster.data {getattr(self._data, 'order', '')}".rstrip(), self._data.position)
        if self._extra:
            self.strategy.register_blob("muster.extra")
            self._save()
        if self._checkpoint is not None:
            self.strategy.restore(str(self._checkpoint))

    # --- what a step knows ---

    @property
    def step(self):
        """The step that has begun, inside of one; else the last that was committed. A step without records, after the last pass
        over the data, does not count."""
        return self._committed + self._is_begun

    @property
    def rank(self):
        return self.strategy.rank

    @property
    def size(self):
        return self.strategy.size

    @property
    def task(self):
        return self.strategy.task

    @property
    def contributors(self):
        return self.strategy.contributors

    @property
    def joined(self):
        """How many members came, or came back, with this step."""
        return self.strategy.joined

    @property
    def restored(self):
        return self.strategy.restored

    @property
    def should_checkpoint(self):
        """Whether this member saves what is saved once: rank 0 of the step."""
        return self.strategy.should_checkpoint

    @property
    def should_save_summary(self):
        """Whether this member writes logs for all. Equal to should_checkpoint."""
        return self.strategy.should_save_summary

    # --- the loop ---

    def steps(self, until):
        """Gives this object for each step until `until` is committed, by this member or by those who have given it their
        state. When the job is over before this late worker is back, the program ends here with exit code 0: what
        follows the loop is for workers that have done the work. A job that is preempted ends the program with the exit code
        that says so."""
        if not isinstance(until, numbers.Real) or math.isnan(until):
            raise TypeError(f"until must be the number of the last step, math.inf for no end, got {until!r}")
        self._until = until
        while self._committed < until and not self._is_done():
            try:
                is_begun = self._begin(None if math.isinf(until) else math.ceil(until))
            except muster.JobOver:
                self._end_late()
            except muster.Cancelled:
                if not self.strategy.preempted:
                    raise
                self.close()
                sys.exit(EXIT_PREEMPTED)
            if not is_begun:  # it came back after the last step, and has the others' state
                return
            if self._is_done():  # as the state says that this member was given
                self._drop_step()
                return
            yield self
            if self._is_begun:
                raise RuntimeError(f"step {self.step} was not committed: the work of a step must be inside of `with step:` in the loop "
                                   "`for step in elastic.steps(…)`")

    def stop(self):
        """This step is the last of the job, on all members, as all must say: steps() ends behind its commit, also in a worker
        that comes back later, and when the job begins with a checkpoint of that step. A `break` tells nobody: a worker
        that comes back while the others close would train on, alone."""
        if not self._is_begun:
            raise RuntimeError("stop() must be inside of `with step`")
        self._is_last = True

    def _is_done(self):
        """Whether the state says that no step is left: stop() was called, or all passes over the data are done."""
        return self._is_over or self._last[0] > 0 or (self._has_state and self._data is not None and self._data.is_over)

    def _drop_step(self):
        """The step that has begun is nobody's work."""
        self._is_begun = False

    def _end_late(self):
        """The others have finished without this worker, whose state is not a result."""
        self.strategy.close()
        sys.exit(0)

    def begin(self):
        """Begin a step. `with` does this first, unless steps() has done it."""
        self._begin()

    def _begin(self, until=None):
        """Whether a step has begun: not behind step `until`, where this member has the state."""
        if not self._was_begun:
            self._was_begun = True
            if self._slots is not None:
                self._slots.open(self.strategy, *self._measure_slot())
            self._adopt()
        step = self.strategy.begin(until)
        if self._extra and (not self._has_state or self.strategy.restored):
            self._load()
        self._has_state, self._is_begun = True, step is not None
        self._shared, self._is_last = None, False
        if self._slots is not None:
            self._slots.begin_step()
        if step is None:  # the last one of the state may be empty: the data were over
            self._committed = int(-self._last[0]) if self._last[0] < 0 else self.strategy.committed_step
            return False
        self._committed = step - 1
        # Members that are past the last step take part in no checkpoint.
        if self._checkpoint is not None and 0 < self._committed < self._until and self._committed % self._every == 0:
            self._start_checkpoint()
        return True

    def _adopt(self):
        """Before the first begin: what the program has changed since the constructor, or loaded, is what the job begins with."""
        if self._extra:
            self._save()

    def _start_checkpoint(self):
        """A checkpoint that cannot be begun now costs no step."""
        try:
            self.strategy.checkpoint(str(self._checkpoint), keep=self._keep)
        except (muster.Aborted, muster.FailedPrecondition) as error:
            self.strategy._aborted = False
            print(f"muster: no checkpoint of step {self._committed}: {error}", file=sys.stderr)

    def __enter__(self):
        if not self._is_begun:
            self.begin()
        return self

    def _end_of(self, kind):
        """How the step ends: one whose program has caught muster.Aborted lacks an operation, and runs again as well."""
        if kind is not None or not self.strategy._aborted:
            return kind
        print(f"muster: step {self.step} runs again: an operation of it ended with muster.Aborted, which the program has caught. Let the exception "
              "leave `with step`", file=sys.stderr, flush=True)
        return muster.Aborted

    def __exit__(self, kind, value, traceback):
        kind = self._end_of(kind)
        self._is_begun = False
        if kind is None or kind is _DataOver:  # a step without records, on all members: they are done after its commit
            self._is_over = kind is not None
            self._end_work()
            last = self._note_last()
            self.strategy.commit()
            self._committed = last
            return self._is_over
        if issubclass(kind, muster.Aborted):
            self._has_state = False  # what extra has done since begin is undone
            return True
        if issubclass(kind, muster.JobOver):
            self._end_late()
        if not self.strategy.closed:
            self.strategy.abandon(f"{kind.__name__}: {value}")
        return False

    def _note_last(self):
        """Writes into the state, before a commit, whether this step is the last. Returns the number of the last step that counts."""
        last = self._committed + 1
        if self._is_over:
            last = int(-self._last[0]) or self._committed  # a job that goes on from a checkpoint may find the data over at once
        self._last[0] = -last if self._is_over else last if self._is_last else 0
        return last

    def _end_work(self):
        """Before a commit. An error of it is one of the step: the others go on."""
        try:
            if self._slots is not None and not self._is_over:
                self._slots.check_step(self._committed + 1, self._is_last)
                if self._data is not None and self._slots.round > 0:
                    self._data.complete_step()
            if self._extra:
                self._save()
        except Exception as error:
            self.strategy.abandon(f"{type(error).__name__}: {error}")
            raise

    # --- gradients ---

    def buffers(self, like):
        """Arrays of zeroes with the shapes and types of `like`, one after the other in memory that the other processes
        of the host map: average() reduces them without copies, those of a type at once."""
        if self._slots is not None and self._was_begun:
            raise RuntimeError("buffers() must be before the first step of an Elastic with slots")
        arrays = [numpy.asarray(each) for each in like]
        for each in arrays:
            if each.dtype.name not in _NAMES:
                raise ValueError(f"buffers() must be like arrays of {', '.join(_NAMES)}, which have means, got {each.dtype.name}")
        made = [None] * len(arrays)
        for dtype in dict.fromkeys(array.dtype for array in arrays):
            places = [i for i, array in enumerate(arrays) if array.dtype == dtype]
            count = sum(arrays[i].size for i in places)
            flat = numpy.asarray(self.strategy.zeros(count + self._room_of_claims(dtype.name), _NAMES[dtype.name]))
            self._buffers.append(flat)
            at = 0
            for i in places:
                made[i] = flat[at:at + arrays[i].size].reshape(arrays[i].shape)
                at += arrays[i].size
        return made

    def average(self, arrays=None, weight=1):
        """The mean of all members' arrays (without any: of all buffers) by their weights, in place. After it nobody may
        call an operation that the others do not call. With data: the mean of all buffers over the records of all. With
        slots: that over all slots, without arguments."""
        if self._slots is not None:
            self._check_slots("step.average()")
            self._check_plain(arrays, weight != 1)
            self._average_slots()
            return
        if self._data is not None and arrays is None:
            if len(self._buffers) != 1:
                raise ValueError("with data, buffers() must be called once, for float32")
            self._average_claimed(self._buffers[0])
            return
        if arrays is None and not self._buffers:
            raise ValueError(f"step.average() without arrays is the mean of buffers, and this Elastic has none: {_BUFFERS_REMEDY}, or give arrays")
        self.strategy.all_reduce_weighted(self._buffers if arrays is None else arrays, _weight_of(weight))

    # --- slots ---

    @property
    def slot_count(self):
        """How many slots a step has, of all members together; 0: steps without slots."""
        return 0 if self._slots is None else self._slots.count

    @property
    def slots(self):
        """This member's slots of the step, for one loop: numbers below slot_count. Where there are more members than
        slots some have none; they go through the loop, too. After the last pass over the data it ends `with` and steps()."""
        self._check_slots("step.slots")
        return self._each_slot()

    def _each_slot(self):
        mine = self._slots.begin_round()
        shares = [None] * len(mine) if self._data is None else self._data.shares(mine, self._slots.count)
        if shares is None:
            raise _DataOver
        drawn = self._draws()
        self._enter_slots()
        for slot, self._shared in zip(mine, shares):
            self._slots.current = slot
            self._enter_slot(slot)
            yield slot
            self._slots.check_added()
        self._shared = None
        self._slots.end_loop()
        if self._draws() != drawn:
            raise RuntimeError("a generator of extra was drawn from inside of `for slot in step.slots`, which members do differently often: draw "
                               "before the loop, or use one made of the step and the slot, numpy.random.default_rng((step.step, slot))")
        self._leave_slots()

    def add(self, weight=None):
        """The current slot is done: buffers hold its mean over `weight` examples. Without a weight: with data the number of
        the slot's records, else 1."""
        self._check_slots("step.add()")
        self._slots.check_current("step.add()")
        if self._slots.means.size == 0:
            raise ValueError(f"step.add() gives what is in buffers, and this Elastic has none: {_BUFFERS_REMEDY}")
        if weight is None:
            weight = self._weight_of_slot()
        weight = _weight_of(weight)
        self._fill_slot(weight)
        self._slots.put(weight)

    def _check_slots(self, name):
        if self._slots is None:
            raise RuntimeError(f"{name} needs slots: Elastic(…, slots=8), or slots=None under `muster run --constant-batch 8`")
        if not self._is_begun:
            raise RuntimeError(f"{name} must be inside of `with step`")

    def _check_plain(self, arrays, has_weight):
        if arrays is not None or has_weight:
            raise ValueError("with slots average() takes no arrays and no weight: arrays are those of buffers(), and step.add(weight=…) "
                             "gives the weight of a slot")

    def _draws(self):
        """The states of the generators in extra."""
        return _dump(_generators_in(self._extra))

    def _measure_slot(self):
        """Elements of means and of sums that a slot has, and whether they are float64."""
        return sum(each.size for each in self._buffers), 0, any(each.dtype == numpy.float64 for each in self._buffers)

    def _enter_slots(self):
        pass

    def _enter_slot(self, slot):
        pass

    def _leave_slots(self):
        pass

    def _weight_of_slot(self):
        return 1 if self._shared is None else len(self._shared[1])

    def _fill_slot(self, weight):
        """Puts the buffers into the means. Returns where in these it has ended."""
        at = 0
        for flat in self._buffers:
            self._slots.means[at:at + flat.size] = flat
            at += flat.size
        return at

    def _average_slots(self):
        self._slots.sum()
        self._take_mean()

    def _take_mean(self):
        """As _fill_slot, the other way round."""
        at = 0
        for flat in self._buffers:
            flat[:] = self._slots.means[at:at + flat.size]
            at += flat.size
        return at

    # --- data ---

    def share(self):
        """A batch of muster.data: this member's part of the step. After the last one it ends `with` and steps(). With slots:
        the current slot's part."""
        if self._data is None:
            raise RuntimeError("share() needs a dataset: Elastic(…, data=muster.data.…)")
        if self._slots is not None:
            self._slots.check_current("step.share()")
            return self._shared
        self._shared = self._data.next_share(self.rank, self.size)
        if self._shared is None:
            raise _DataOver
        return self._shared

    def _room_of_claims(self, dtype):
        if self._data is None or self._slots is not None:
            return 0
        if dtype != "float32":
            raise ValueError(f"with data gradients must be float32, got {dtype}: the records that were used are counted beside them")
        return self._data.claims

    def _average_claimed(self, flat):
        """The sum tells whose records are in it: the same operation carries the gradients and the claims of the records."""
        if self._shared is None:
            raise RuntimeError("with data a step takes its records by step.share()")
        gradients, claims = flat[:-self._data.claims], flat[-self._data.claims:]
        if self._shared[1]:
            gradients *= len(self._shared[1])
        else:
            gradients[:] = 0  # the mean of nothing may be NaN
        self._data.record_claims(claims)
        self.strategy.all_reduce(flat)
        used = self._data.apply_claims(claims)
        gradients /= max(used, 1)

    def report(self, name, value):
        """A number for the launcher's progress line."""
        self.strategy.report(name, value)

    def close(self):
        self.strategy.close()

    # --- what is state and not an array ---

    def _save(self):
        self.strategy.set_blob("muster.extra", _dump_all({name: _state_of(name, each) for name, each in self._extra.items()}))

    def _load(self):
        values = pickle.loads(self.strategy.blob("muster.extra"))
        if set(values) != set(self._extra):
            raise ValueError(f"extra must have the same names on all workers and in the checkpoint: this program has {sorted(self._extra)}, "
                             f"the state that it is to go on from has {sorted(values)}; give extra the same names everywhere, or name an "
                             "empty folder for checkpoints")
        for name, value in values.items():
            _set_state(self._extra[name], value)


_BUFFERS_REMEDY = "call gradient, = elastic.buffers([weights]) before the first step, and compute into these arrays"
_NAMES = {"float32": "f32", "float64": "f64", "float16": "f16"}
