"""Among whom an operation of the c10d backend runs: all members, or some of them by messages."""

import numpy
import torch

import muster
from muster.torch.mail import Mail

_SMALL_BYTES = 65536  # an all_reduce of less goes to all others whole
_DIRECT = {
    "all_reduce": lambda s, i, o, d, w: s.all_reduce(o, w["op"], dtype=d),
    "broadcast": lambda s, i, o, d, w: s.broadcast(o, w["rank"], dtype=d),
    "reduce": lambda s, i, o, d, w: s.reduce(o, w["op"], w["rank"], dtype=d),
    "barrier": lambda s, i, o, d, w: s.barrier(),
    "all_gather": lambda s, i, o, d, w: s.all_gather(i, o, dtype=d),
    "all_to_all": lambda s, i, o, d, w: s.all_to_all(i, o, dtype=d),
    "all_to_all_uneven": lambda s, i, o, d, w: s.all_to_all_uneven(i, o, w["input_counts"], w["output_counts"], dtype=d),
    "reduce_scatter": lambda s, i, o, d, w: s.reduce_scatter(i, o, w["op"], dtype=d),
    "gather": lambda s, i, o, d, w: s.gather(i, o, w["rank"], dtype=d),
    "scatter": lambda s, i, o, d, w: s.scatter(i, o, w["rank"], dtype=d),
}


class Everyone:
    """All members: the operations of the strategy, which go on after a death where they can."""

    goes_on = True
    has_lost = False  # a member is gone: no operation that has a place for each ends well

    def __init__(self, strategy, mail, number=0):
        self.strategy, self.mail, self.number = strategy, mail, number
        self.ranks = list(range(strategy.size))

    def run(self, kind, input=None, output=None, dtype=None, **words):
        """Arrays as the strategy's method takes them; rank is the root."""
        if not self.mail.is_awaited:
            _DIRECT[kind](self.strategy, input, output, dtype, words)
        else:  # another member may come to this operation only when its message is received
            request = self.strategy.start(kind, input, output, dtype=dtype, **words)
            self.mail.wait(lambda: request.done, [request])
            request.wait()

    def average(self, array, dtype):
        """The mean of gradients over those that give theirs, in place."""
        self.run("all_reduce", None, array, dtype, op="mean")


class OfStep(Everyone):
    """The members of a step of muster.torch.Elastic. Outside of steps this process is alone, and has its own answers."""

    number = 0

    def __init__(self):
        self.elastic = self.mail = self.error = None

    @property
    def rank(self):
        return self.elastic.rank if self.mail is not None else 0

    @property
    def ranks(self):
        return list(range(self.elastic.size)) if self.mail is not None else [0]

    def begin(self):
        self.strategy, self.mail, self.error = self.elastic.strategy, Mail(self.elastic.strategy), None
        self.has_lost = False

    def end(self):
        """What is sent is received. Raises what an operation of the step has ended with."""
        mail, self.mail = self.mail, None
        mail.close()
        self.check()

    def drop(self):
        """The step is not committed: begin ends what is under way."""
        self.mail = None

    def check(self):
        if self.error is not None:
            raise self.error

    def run(self, kind, input=None, output=None, dtype=None, **words):
        if self.mail is not None:
            super().run(kind, input, output, dtype, **words)
        elif input is not None and output is not None:
            output[:] = input

    def average(self, array, dtype):
        """By the weight of each. An error waits for the update: PyTorch's reducer would not outlive it in backward()."""
        if self.mail is None or self.error is not None:
            return
        try:
            self.strategy.all_reduce_weighted([array], self.elastic.weight, dtype=dtype)
        except muster.Aborted as error:
            self.error = error


def _add(into, part):
    into.add_(part)


_STEPS = {
    "sum": _add,
    "mean": _add,
    "min": lambda into, part: torch.minimum(into, part, out=into),
    "max": lambda into, part: torch.maximum(into, part, out=into),
    "prod": lambda into, part: into.mul_(part),
    "and": lambda into, part: into.bitwise_and_(part),
    "or": lambda into, part: into.bitwise_or_(part),
    "xor": lambda into, part: into.bitwise_xor_(part),
}


def _reduction_of(parts, op, dtype):
    """The reduction of the rows, in their order: the same bits on whoever does it."""
    rows = [torch.from_numpy(part) for part in parts]
    if dtype == "bf16":
        rows = [row.view(torch.bfloat16) for row in rows]
    is_short = rows[0].dtype in (torch.bfloat16, torch.float16)
    total = rows[0].float() if is_short else rows[0].clone()
    for row in rows[1:]:
        _STEPS[op](total, row)
    if op == "mean":
        total = total.div_(len(rows)) if total.is_floating_point() else total.div_(len(rows), rounding_mode="trunc")
    total = total.to(rows[0].dtype)
    return (total.view(torch.int16) if dtype == "bf16" else total).numpy()


class Subgroup:
    """Some members: operations are made of messages between them, so a death ends them with muster.Aborted."""

    goes_on = has_lost = False

    def __init__(self, ranks, me, number, mail):
        self.ranks, self.number, self.mail = ranks, number, mail
        self._place = ranks.index(me)
        self._count = self._part = 0  # of operations: all members count alike

    def run(self, kind, input=None, output=None, dtype=None, **words):
        if "op" in words and dtype is not None and dtype.startswith("f8"):  # its array is one of bits
            raise muster.Mismatch(f"{words['op']} of {dtype} has no meaning: 8-bit floats are only moved; convert them")
        self._count += 1
        self._part = 0
        others = [rank for place, rank in enumerate(self.ranks) if place != self._place]
        self.mail.begin_operation(self._key(), others)
        try:
            getattr(self, "_" + kind)(input, output, dtype, **words)
        except BaseException as error:
            self.mail.tell_given_up(self._key(), others, error)
            if isinstance(error, muster.Aborted):
                raise muster.Aborted(f"{kind} among ranks {self.ranks}: {error}; a group of some ranks does not outlive its members: go on "
                                     "with torch.distributed.new_group of those that are left") from error
            raise

    def _key(self):
        """Below the tags of programs; each operation has room for two parts."""
        return (self.number, self._part - 2 * self._count)

    def _exchange(self, outgoing, incoming):
        """Arrays to and from places of the group; what is this member's own is copied."""
        if self._place in incoming:
            incoming[self._place][:] = outgoing[self._place]
        self.mail.exchange(self._key(), {self.ranks[i]: each for i, each in outgoing.items() if i != self._place},
                           {self.ranks[i]: each for i, each in incoming.items() if i != self._place})

    def _gather_rows(self, array):
        rows = numpy.empty((len(self.ranks), array.size), array.dtype)
        self._exchange(dict.fromkeys(range(len(self.ranks)), array), dict(enumerate(rows)))
        return rows

    def _reduce_rows(self, rows, op, dtype):
        """Row r goes to place r; this place's reduced."""
        mine = numpy.empty_like(rows)
        self._exchange(dict(enumerate(rows)), dict(enumerate(mine)))
        return _reduction_of(mine, op, dtype)

    def _all_reduce(self, _, output, dtype, op):
        if output.nbytes <= _SMALL_BYTES or len(self.ranks) == 2:
            output[:] = _reduction_of(self._gather_rows(output), op, dtype)
            return
        size = -(-output.size // len(self.ranks))
        rows = numpy.zeros((len(self.ranks), size), output.dtype)
        rows.reshape(-1)[:output.size] = output
        reduced = self._reduce_rows(rows, op, dtype)
        self._part = 1
        output[:] = self._gather_rows(reduced).reshape(-1)[:output.size]

    def _broadcast(self, _, output, dtype, rank):
        if self._place == rank:
            self._exchange({i: output for i in range(len(self.ranks)) if i != rank}, {})
        else:
            self._exchange({}, {rank: output})

    def _reduce(self, _, output, dtype, op, rank):
        rows = numpy.empty((len(self.ranks), output.size), output.dtype) if self._place == rank else ()
        self._exchange({rank: output}, dict(enumerate(rows)))
        if self._place == rank:
            output[:] = _reduction_of(rows, op, dtype)

    def _barrier(self, _, output, dtype):
        self._gather_rows(numpy.zeros(0, numpy.uint8))

    def _all_gather(self, input, output, dtype):
        self._exchange(dict.fromkeys(range(len(self.ranks)), input), dict(enumerate(output.reshape(len(self.ranks), -1))))

    def _reduce_scatter(self, input, output, dtype, op):
        output[:] = self._reduce_rows(input.reshape(len(self.ranks), -1), op, dtype)

    def _gather(self, input, output, dtype, rank):
        self._exchange({rank: input}, dict(enumerate(output.reshape(len(self.ranks), -1))) if self._place == rank else {})

    def _scatter(self, input, output, dtype, rank):
        self._exchange(dict(enumerate(input.reshape(len(self.ranks), -1))) if self._place == rank else {}, {rank: output})

    def _all_to_all(self, input, output, dtype):
        self._exchange(dict(enumerate(input.reshape(len(self.ranks), -1))), dict(enumerate(output.reshape(len(self.ranks), -1))))

    def _all_to_all_uneven(self, input, output, dtype, input_counts, output_counts):
        outgoing = numpy.split(input, numpy.cumsum(input_counts)[:-1])
        incoming = numpy.split(output, numpy.cumsum(output_counts)[:-1])
        self._exchange(dict(enumerate(outgoing)), dict(enumerate(incoming)))
