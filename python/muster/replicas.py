"""Replicas: copies of the model that one member computes side by side, as tf.distribute and jax.pmap have them."""

import copy
import threading

import numpy

import muster


class Replicas:
    """The replicas of this member, `strategy.replicas`: as many as its strategy was opened with.

        with muster.Strategy(replicas=2) as strategy:
            strategy.register("weights", weights)
            while strategy.begin() <= 100:
                def train(replica, batch):
                    gradient = gradient_of(weights, batch)
                    replica.all_reduce(gradient, "mean")      # over the replicas of all members
                    return loss_of(weights, batch), gradient
                losses, gradients = zip(*strategy.replicas.run(train, batches))    # a batch for each replica
                loss = strategy.replicas.reduce(losses, "mean")
                weights -= 0.1 * gradients[0]
                strategy.commit()

    Replicas are numbered through all members, in the order of their ranks; members may have different numbers. Values
    are lists with one entry for each replica of this member. Calls that need the other members stand between begin and
    commit, and are made by all members in the same order. The results have the same bits on all.
    """

    def __init__(self, strategy):
        self._strategy = strategy

    def __len__(self):
        """How many this member has."""
        return self._strategy._replicas_local

    @property
    def first(self):
        """The number of this member's first replica among those of all, as of begin; the others follow."""
        return self._strategy._replicas_first

    @property
    def total(self):
        """The replicas of all members, as of begin."""
        return self._strategy._replicas_total

    def gpu(self, local):
        """The GPU of this member's replica `local`, by its number in this process; None: it computes on the CPU."""
        return self._strategy._replicas_gpu(local)

    def run(self, function, *values):
        """Call function(replica, …) for each replica of this member with its entry of each of `values`, and return a list
        of what they have returned. The first runs on this thread, each other one on a thread of its own, so that they
        compute side by side where they release the GIL, as NumPy and PyTorch do. The first exception of a replica, in their
        order, comes out when all have ended."""
        for each in values:
            self._check(each)
        crew = _Crew(self, function, values)
        return crew.run()

    def reduce(self, values, op="sum", axis=None, dtype=None):
        """Reduce one array (or number) of each replica to one array, which every member gets. With an axis "sum" and "mean"
        go over that dimension of the arrays, too; its extent may differ between replicas. The result is an array of NumPy,
        in host memory also when the values are on devices. Elements of a type that NumPy lacks ("bf16") are unsigned
        integers there."""
        arrays = self._arrays(values)
        shape = list(arrays[0].shape)
        if axis is not None:
            if not -len(shape) <= axis < len(shape):
                raise ValueError(f"axis must be one of the {len(shape)} of the arrays, got {axis}")
            del shape[axis]
        output = numpy.empty(shape, _type_of(arrays[0]))
        self._strategy._replicas_reduce(arrays, [each.shape for each in arrays], axis, op, output.reshape(-1), dtype)
        return output

    def all_reduce(self, values, op="mean", dtype=None):
        """Reduce arrays, such as gradients, over all replicas, in place: for each replica an array, or a list of them."""
        self._check(values)
        lists = [list(each) if isinstance(each, (list, tuple)) else [each] for each in values]
        self._strategy._replicas_all_reduce([array for each in lists for array in each], op, dtype)

    def gather(self, values, axis=0, dtype=None):
        """Join the arrays of all replicas along an axis, in the order of replicas; every member has the whole, as an array of
        NumPy like that of reduce. Extents of the axis may differ. Raises muster.Aborted when a member has gone: begin the
        step again."""
        arrays = self._arrays(values)
        whole, shape = self._strategy._replicas_gather(arrays, [each.shape for each in arrays], axis, dtype)
        return numpy.frombuffer(whole, _type_of(arrays[0])).reshape(shape)

    def assign(self, variable, values, aggregation="mean", add=False, dtype=None):
        """Set an array that the replicas of this member share to the "mean" or "sum" of the values of all replicas, or add
        it. With "first" the first replica of this member decides here, as in TensorFlow, and members may differ."""
        kind = _type_of(variable)
        arrays = self._arrays([numpy.asarray(each, kind) if numpy.isscalar(each) else each for each in values])
        self._strategy._replicas_assign([variable], arrays, aggregation, add, dtype)

    def mirror(self, values, dtype=None):
        """Give the arrays of this member's first replica to its others. What is registered is restored for the first alone:
        call this in the first step, and after each begin that has restored the state."""
        self._check(values)
        lists = [list(each) if isinstance(each, (list, tuple)) else [each] for each in values]
        self._strategy._replicas_mirror([array for each in lists for array in each], dtype)

    def _check(self, values):
        if len(values) != len(self):
            raise ValueError(f"there must be a value for each of this member's {len(self)} replicas, got {len(values)}")

    def _arrays(self, values):
        """Arrays as they are, numbers as arrays of no dimension, memory that is contiguous."""
        self._check(values)
        return [each if hasattr(each, "__cuda_array_interface__") else numpy.require(each, requirements="C") for each in values]


class Replica:
    """One replica, as its own function sees it. Each call waits for the other replicas of this member, which make the same
    one, and then for the other members."""

    def __init__(self, crew, local):
        self._crew = crew
        self.local = local
        self.id = crew.replicas.first + local
        self.size = crew.replicas.total
        self.gpu = crew.replicas.gpu(local)

    def all_reduce(self, arrays, op="mean", dtype=None):
        """Reduce an array, or each of a list of them, over the replicas of all members, in place."""
        self._crew.call(self.local, ("all_reduce", op, dtype), arrays)

    def reduce(self, value, op="sum", axis=None, dtype=None):
        """The reduction of one array (or number) of each replica."""
        return self._crew.call(self.local, ("reduce", op, axis, dtype), value)

    def gather(self, value, axis=0, dtype=None):
        """The arrays of all replicas, joined along an axis."""
        return self._crew.call(self.local, ("gather", axis, dtype), value)

    def assign(self, variable, value, aggregation="mean", add=False, dtype=None):
        """Set an array that the replicas of this member share to the "mean" or "sum" of the values of all replicas, or add
        it. All of them name the same array."""
        self._crew.call(self.local, ("assign", aggregation, add, dtype), (variable, value))


class _Crew:
    """The replicas of one run. Their calls are those of the first one's thread, which may be asked to stop by a signal."""

    def __init__(self, replicas, function, values):
        self.replicas = replicas
        self._function, self._values = function, values
        self._count = len(replicas)
        self._condition = threading.Condition()
        self._made = {}  # replica: its call that waits
        self._gone = {}  # replica: how its function has ended
        self._rounds, self._outcome = 0, None
        self._results, self._errors = [None] * self._count, [None] * self._count

    def run(self):
        threads = [threading.Thread(target=self._work, args=(local,), name=f"replica {local}", daemon=True) for local in range(1, self._count)]
        for each in threads:
            each.start()
        self._work(0)
        for each in threads:
            each.join()
        errors = [each for each in self._errors if each is not None]
        if errors:
            raise next((each for each in errors if not _is_left(each)), errors[0])
        return self._results

    def _work(self, local):
        how = "has returned"
        try:
            self._results[local] = self._function(Replica(self, local), *(each[local] for each in self._values))
        except BaseException as error:  # raised by run
            self._errors[local], how = error, None if _is_left(error) else f"has ended with {type(error).__name__}"
        with self._condition:
            self._gone[local] = how
            self._condition.notify_all()

    def call(self, local, kind, value):
        with self._condition:
            self._made[local] = (kind, value)
            self._condition.notify_all()
            if local == 0:
                self._condition.wait_for(lambda: len(self._made) + len(self._gone) >= self._count)
                self._run_call()
            else:
                before = self._rounds
                self._condition.wait_for(lambda: self._rounds > before or 0 in self._gone)
                if self._rounds == before:  # nobody makes the call
                    raise self._left(kind)
            results, error = self._outcome
        if error is not None:
            raise error if local == 0 else _twin_of(error)
        return results[local]

    def _run_call(self):
        made, self._made = self._made, {}
        self._outcome = None, self._left(made[0][0])  # of one that an exception cuts short, too
        try:
            if not self._gone:
                self._outcome = self._results_of([made[local] for local in range(self._count)]), None
        except Exception as error:
            self._outcome = None, error
        finally:
            self._rounds += 1
            self._condition.notify_all()

    def _results_of(self, calls):
        kinds = {kind for kind, _ in calls}
        if len(kinds) > 1:
            raise muster.InvalidArgument(f"the replicas of a member must make the same call, got {' and '.join(map(repr, sorted(kinds, key=repr)))}")
        (name, *words), values = calls[0][0], [value for _, value in calls]
        if name == "assign":
            variables, values = zip(*values)
            if any(each is not variables[0] for each in variables):
                raise muster.InvalidArgument("the replicas of a member must assign to the same array, which they share")
            self.replicas.assign(variables[0], values, *words)
            return [None] * self._count
        result = getattr(self.replicas, name)(values, *words)
        return [result if local == 0 or result is None else result.copy() for local in range(self._count)]

    def _left(self, kind):
        how = ", ".join(f"replica {local} {how}" for local, how in sorted(self._gone.items()) if how)
        error = muster.FailedPrecondition(f"{kind[0]} of the replicas of this member: {how}; all of them must make the same calls")
        error.is_left = True
        return error


def _type_of(array):
    """Of NumPy: that of an array on a device is in its interface, for its own dtype may be PyTorch's."""
    interface = getattr(array, "__cuda_array_interface__", None)
    dtype = numpy.dtype(interface["typestr"]) if interface is not None else numpy.asarray(array).dtype
    return numpy.dtype(f"u{dtype.itemsize}") if dtype.kind == "V" else dtype  # bf16, which NumPy lacks


def _twin_of(error):
    """An equal exception for another thread, which adds to its traceback; the same one if its class cannot be copied, because
    the constructor takes something else than what the exception keeps."""
    try:
        twin = copy.copy(error)
        return twin if type(twin) is type(error) and twin.args == error.args else error
    except Exception:
        return error


def _is_left(error):
    """Another replica makes no more calls: what that one has ended with is the cause."""
    return getattr(error, "is_left", False)
