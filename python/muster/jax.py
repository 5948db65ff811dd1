"""Elastic training of JAX programs on CPUs: operations inside of jit, and a loop over a pytree.

    @muster.jax.jit
    def train(state, share, token):
        loss, gradients = jax.value_and_grad(loss_of)(state["weights"], share)
        (loss, gradients), token = muster.jax.pmean((loss, gradients), token, weight=len(share))
        return update(state, gradients), loss, token

Operations take a pytree and a token, and give both back. XLA runs what does not depend on another in any order, and all
members must call the same operations in the same order: each operation takes the token of the one before. The number of
members is not in the program, so that a death compiles nothing anew.
"""

import contextlib
import functools

import jax
import jax.numpy
import numpy

import muster
import muster.elastic
from muster import _muster

_TARGET = "muster_operation"
_PACKED_BYTES = 64 << 10  # arrays of a type with so many or fewer bytes travel as one: an operation costs more than their copy
_KINDS = {"all_reduce": 0, "weighted": 1, "broadcast": 2}
_OPS = ("sum", "mean", "min", "max", "prod", "and", "or", "xor")
_DTYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int32": "i32", "int64": "i64", "uint32": "u32",
           "uint64": "u64", "int8": "i8", "uint8": "u8", "bool": "bool", "int16": "i16", "uint16": "u16",
           "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}

jax.ffi.register_ffi_target(_TARGET, _muster.xla_target(), platform="cpu")


# --- Tokens ---


@jax.tree_util.register_pytree_node_class
class Token:
    """The order of operations, and the strategy that they are of: an argument and a result of compiled functions.

    rehearsal: operations give back what they get, and talk to nobody. With such a token a program is compiled and tried
    before its first step, so that the others do not wait for that.
    """

    def __init__(self, strategy, *, rehearsal=False):
        self._number = _muster.xla_number(strategy)
        self._value = jax.numpy.asarray(numpy.uint32(rehearsal))

    def tree_flatten(self):
        return (self._value,), self._number

    @classmethod
    def tree_unflatten(cls, number, leaves):
        token = object.__new__(cls)
        token._number, (token._value,) = number, leaves
        return token


# --- Operations ---


def all_reduce(tree, token, op="sum"):
    """The reduction of all members' arrays, and the next token. op: sum, mean, min, max, prod, and, or, xor."""
    if op not in _OPS:
        raise ValueError(f"op must be one of {', '.join(_OPS)}, got {op!r}")
    return _call("all_reduce", tree, token, op=_OPS.index(op))


def pmean(tree, token, weight=None):
    """The mean of all members' arrays, and the next token. weight: how much this member's count, a whole number that may
    be traced; without it all count alike. A member that has died does not count."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if not jax.numpy.issubdtype(jax.numpy.result_type(leaf), jax.numpy.floating):
            raise TypeError(f"pmean: {_name(path)} must be of floating numbers, got {jax.numpy.result_type(leaf)}")
    if weight is None:
        return _call("all_reduce", tree, token, op=_OPS.index("mean"))
    weight = jax.numpy.asarray(weight)
    if weight.shape != () or not jax.numpy.issubdtype(weight.dtype, jax.numpy.integer):
        raise TypeError(f"weight must be one whole number, got {weight.dtype} of shape {weight.shape}")
    if not isinstance(weight, jax.core.Tracer) and not 0 <= int(weight) < 1 << 32:
        raise ValueError(f"weight must be between 0 and {(1 << 32) - 1}, got {int(weight)}")
    return _call("weighted", tree, token, (weight.astype(jax.numpy.uint32),))


def broadcast(tree, token, root=0):
    """The arrays of rank root, and the next token."""
    if not isinstance(root, int) or root < 0:
        raise ValueError(f"root must be a rank, got {root!r}: it is part of the compiled program")
    leaves, shape = jax.tree_util.tree_flatten(tree)
    arrays, unpack = _pack([jax.numpy.asarray(leaf) for leaf in leaves])
    for i, array in enumerate(arrays):
        if array.size > 0:
            arrays[i], token = _call("broadcast", array, token, root=root)
    return jax.tree_util.tree_unflatten(shape, unpack(arrays)), token


def _name(path):
    return jax.tree_util.keystr(path) or "the array"


def _pack(arrays):
    """The arrays, small ones of a type as one, and a function that takes them apart again. Follows from types and shapes
    alone, which all members have alike."""
    small = {}
    for i, array in enumerate(arrays):
        if 0 < array.size * array.dtype.itemsize <= _PACKED_BYTES:
            small.setdefault(array.dtype.name, []).append(i)
    packs = [places for places in small.values() if len(places) > 1]
    packed = {i for places in packs for i in places}
    alone = [i for i in range(len(arrays)) if i not in packed]
    shapes = [array.shape for array in arrays]
    sizes = [array.size for array in arrays]

    def unpack(received):
        whole = dict(zip(alone, received))
        for places, pack in zip(packs, received[len(alone):]):
            ends = numpy.cumsum([sizes[i] for i in places])
            whole.update((i, part.reshape(shapes[i])) for i, part in zip(places, jax.numpy.split(pack, ends[:-1])))
        return [whole[i] for i in range(len(shapes))]

    return [arrays[i] for i in alone] + [jax.numpy.concatenate([arrays[i].reshape(-1) for i in places]) for places in packs], unpack


def _call(kind, tree, token, more=(), op=0, root=0):
    """One call of XLA for all arrays. Those of no elements stay away from it."""
    if not isinstance(token, Token):
        raise TypeError(f"token must be a muster.jax.Token, got {type(token).__name__}: each operation gives the next one's")
    paths, shape = jax.tree_util.tree_flatten_with_path(tree)
    arrays = []
    for path, leaf in paths:
        array = jax.numpy.asarray(leaf)
        if array.dtype.name not in _DTYPES:
            raise TypeError(f"{kind}: {_name(path)} must be of {', '.join(_DTYPES)}, got {array.dtype.name}")
        arrays.append(array)
    sent, unpack = _pack([array for array in arrays if array.size > 0])
    operands = [*sent, *more, token._value]
    results = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in (*sent, token._value)]
    places = {i: i for i in range(len(sent))}
    places[len(operands) - 1] = len(sent)
    call = jax.ffi.ffi_call(_TARGET, results, has_side_effect=True, input_output_aliases=places)
    *received, value = call(*operands, kind=numpy.int32(_KINDS[kind]), op=numpy.int32(op), root=numpy.int32(root),
                            strategy=numpy.int32(token._number))
    received = iter(unpack(received))
    leaves = [next(received) if array.size > 0 else array for array in arrays]
    return jax.tree_util.tree_unflatten(shape, leaves), Token.tree_unflatten(token._number, (value,))


# --- Exceptions ---


@contextlib.contextmanager
def errors():
    """Raises the exception of an operation that has failed in a compiled function, in place of JAX's error about it."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        own = _own_error(error)
        if own is None:
            raise
        raise own from None


def _own_error(error):
    own = _muster.xla_take_error()
    return own if own is not None and str(own) in str(error) else None


def jit(function=None, **options):
    """jax.jit, with muster's exceptions as themselves. The function's results are there when it returns."""
    if function is None:
        return functools.partial(jit, **options)
    compiled = jax.jit(function, **options)

    @functools.wraps(function)
    def call(*arguments, **named):
        with errors():
            return jax.block_until_ready(compiled(*arguments, **named))
    call.lower = compiled.lower
    return call


# --- The loop ---


class Elastic(muster.elastic.Elastic):
    """The loop of a program whose state is a pytree: see muster.Elastic.

        elastic = muster.jax.Elastic({"weights": weights, "optimizer": optimizer.init(weights)})
        elastic.rehearse(train, elastic.state, batch_of(1))
        for step in elastic.steps(1000):
            with step:
                share = batch_of(step.step)[step.rank::step.size]
                step.state, loss, _ = train(step.state, share, step.token)
        elastic.close()

    state: parameters, the optimizer's state, whatever the next step depends on. It is kept in memory of this object at
    each commit, whence a joiner is given it; when a step runs again, `state` is what it was at its begin, also if it
    was donated. Types and shapes of the arrays stay the same.

    slots: as in muster.Elastic. means: a pytree like what each slot gives, with arrays, or their types as jax.eval_shape
    gives them, of floating numbers. Compiled functions that the slots call have no operations of muster.jax:

        elastic = muster.jax.Elastic({"weights": weights}, slots=8, means=(0.0, weights))
        for step in elastic.steps(1000):
            with step:
                for slot in step.slots:
                    step.add(loss_and_gradient(step.state, batch_of(step.step, slot)), weight=32)
                loss, gradient = step.average()         # over all examples of all slots
                step.state = update(step.state, gradient)
    """

    def __init__(self, state, *, means=None, **options):
        self._mean = self._read_means(means, options.get("slots", 0))
        leaves, self._shape = jax.tree_util.tree_flatten_with_path(state)
        self._kept = {}
        for path, leaf in leaves:
            if isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                raise TypeError(f"state {_name(path)} is a key of random numbers: keep jax.random.key_data of it")
            self._kept[f"state{jax.tree_util.keystr(path)}"] = numpy.array(jax.numpy.asarray(leaf))
        super().__init__({name: _bytes_of(array) for name, array in self._kept.items() if array.size > 0}, **options)
        self._load_state()

    def _read_means(self, means, slots):
        """By name the array of each leaf."""
        if (means is None) != (slots == 0):
            raise ValueError("Elastic(…) must have slots and means together: means is a pytree like what a slot gives to step.add(), such as (0.0, "
                             "weights)")
        leaves, self._mean_shape = jax.tree_util.tree_flatten_with_path(means)
        read = {}
        for path, leaf in leaves:
            kind = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.numpy.asarray(leaf)
            if not jax.numpy.issubdtype(kind.dtype, jax.numpy.floating):
                raise TypeError(f"means: {_name(path)} must be of floating numbers, got {kind.dtype}")
            read[_name(path)] = numpy.zeros(kind.shape, kind.dtype)
        return read

    @property
    def token(self):
        """A token for the first operation of a step."""
        return Token(self.strategy)

    def rehearse(self, function, *arguments):
        """Call function(*arguments, token) to compile it; its operations talk to nobody. Without this the others would
        wait for the compiler in the first step. `state` may be donated."""
        if self._is_begun:
            raise RuntimeError("rehearse() must be outside of `with step`")
        if not self._was_begun:
            self._save_state()
        with errors():
            jax.block_until_ready(function(*arguments, Token(self.strategy, rehearsal=True)))
        self._load_state()

    def _begin(self, until=None):
        is_first = not self._has_state
        is_begun = super()._begin(until)
        if is_first or self.strategy.restored:
            self._load_state()
        return is_begun

    def _adopt(self):
        self._save_state()
        super()._adopt()

    def __exit__(self, kind, value, traceback):
        kind = self._end_of(kind)
        own = _own_error(value) if isinstance(value, jax.errors.JaxRuntimeError) else None
        if kind is None:
            try:
                with errors():
                    self._save_state()
            except Exception as error:  # of an operation whose results nobody has waited for; of a state of another shape
                if super().__exit__(type(error), error, error.__traceback__):
                    return True
                raise
        if own is None:
            return super().__exit__(kind, value, traceback)
        if super().__exit__(type(own), own, traceback):
            return True
        raise own from None

    # --- slots ---

    def add(self, tree, weight=None):
        """The current slot is done: the tree, like means, is its mean over `weight` examples. Without a weight: with data the
        number of the slot's records, else 1."""
        self._check_slots("step.add()")
        leaves, shape = jax.tree_util.tree_flatten(tree)
        if shape != self._mean_shape:
            raise ValueError(f"step.add() must be given a {self._mean_shape}, as means has it, got {shape}")
        with errors():
            arrays = [numpy.asarray(jax.numpy.asarray(leaf)) for leaf in leaves]  # waits
        for (name, kept), array in zip(self._mean.items(), arrays):
            if array.shape != kept.shape or array.dtype != kept.dtype:
                raise ValueError(f"step.add(): {name} must be {kept.dtype} of shape {kept.shape}, got {array.dtype} of shape {array.shape}")
            numpy.copyto(kept, array)
        super().add(weight)

    def average(self, arrays=None, weight=1):
        """With slots: the mean over all slots, a tree like means. Without: as in muster.Elastic."""
        super().average(arrays, weight)
        if self._slots is None:
            return None
        return jax.tree_util.tree_unflatten(self._mean_shape, [jax.numpy.array(each) for each in self._mean.values()])

    def _measure_slot(self):
        means, sums, is_wide = super()._measure_slot()
        return means + sum(each.size for each in self._mean.values()), sums, is_wide or any(each.itemsize > 4 for each in self._mean.values())

    def _fill_slot(self, weight):
        at = super()._fill_slot(weight)
        for each in self._mean.values():
            self._slots.means[at:at + each.size] = each.reshape(-1)
            at += each.size
        return at

    def _take_mean(self):
        at = super()._take_mean()
        for each in self._mean.values():
            each[...] = self._slots.means[at:at + each.size].reshape(each.shape)
            at += each.size
        return at

    # --- the state ---

    def _load_state(self):
        self.state = jax.tree_util.tree_unflatten(self._shape, [jax.numpy.array(array.copy()) for array in self._kept.values()])

    def _save_state(self):
        leaves, shape = jax.tree_util.tree_flatten(self.state)
        if shape != self._shape:
            raise ValueError(f"state must stay a {self._shape}, got {shape}")
        arrays = [numpy.asarray(leaf) for leaf in leaves]  # waits
        for (name, kept), array in zip(self._kept.items(), arrays):
            if array.shape != kept.shape or array.dtype != kept.dtype:
                raise ValueError(f"{name} must stay {kept.dtype} of shape {kept.shape}, got {array.dtype} of shape {array.shape}")
        for kept, array in zip(self._kept.values(), arrays):
            numpy.copyto(kept, array)


def _bytes_of(array):
    """NumPy's buffers lack bf16 and fp8."""
    return array.reshape(-1).view(numpy.uint8)
