"""Steps in slots, for the loops of muster.Elastic: the mean over the slots has the same bits with any number of members."""

import operator
import os

import numpy

_WEIGHT_BYTES = 8  # each is summed by itself: float32 holds 65,536 times 255, and not each sum of weights


class Slots:
    """The micro-batches of a strategy, and the memory that a slot is given from, and that the sum comes back to.

    means: elements that become the mean over all slots by their weights. sums: elements that become the sum."""

    def __init__(self, asked):
        self._asked = asked
        self.count = int(os.environ.get("MUSTER_CONSTANT_BATCH") or 0) if asked is None else operator.index(asked)
        self.begin_step()

    def open(self, strategy, means, sums, is_wide):
        """Before the first begin."""
        count = means + sums + _WEIGHT_BYTES
        self._micro = strategy.micro_batches(self._asked, count, "f64" if is_wide else "f32")
        self._memory = numpy.zeros(count, numpy.float64 if is_wide else numpy.float32)
        self.means, self.sums, self._weight = numpy.split(self._memory, [means, means + sums])

    def begin_step(self):
        self.round = 0  # how often the step has gone through its slots
        self.current = None
        self._has_sum = True  # nothing waits for it
        self._is_in_loop = False

    def begin_round(self):
        """The slots of this member: a range."""
        if not self._has_sum:
            raise RuntimeError("step.slots once more before step.average(): the step must take the mean of each loop over its slots")
        mine = self._micro.begin()
        self.round += 1
        self._has_sum, self._is_in_loop = False, True
        return mine

    def end_loop(self):
        self._is_in_loop = False

    def check_current(self, name):
        if self.current is None:
            raise RuntimeError(f"{name} must be inside of `for slot in step.slots`, once for each slot")

    def check_added(self):
        if self.current is not None:
            raise RuntimeError(f"slot {self.current} was not added: call step.add() at the end of each slot")

    def put(self, weight):
        """The current slot: its means and sums are filled."""
        if weight == 0:
            self.means[:] = 0  # the mean of nothing may be NaN
        elif weight > 1:
            with numpy.errstate(over="ignore"):  # of gradients the program sees it; a constant buffer is not taken from here
                self.means *= float(weight)
        self._weight[:] = numpy.frombuffer(weight.to_bytes(_WEIGHT_BYTES, "little"), numpy.uint8)
        self._micro.put(self._memory)
        self.current = None

    @property
    def has_mean(self):
        """Whether the step's last loop over its slots has had its mean."""
        return self._has_sum and self.round > 0

    def check_sum(self):
        if self._has_sum:
            raise RuntimeError("the mean of a step with slots is that of `for slot in step.slots: …; step.add()`, which must come before it, "
                               "also where this member has no slot")
        if self._is_in_loop:
            raise RuntimeError("the mean of a step with slots must come behind `for slot in step.slots`, which must go to its end")

    def sum(self):
        """Means and sums become those of all slots."""
        self.check_sum()
        self._micro.sum(self._memory)
        self._has_sum = True
        total = sum(int(each) << 8 * i for i, each in enumerate(self._weight))
        self.means /= float(max(total, 1))

    def check_step(self, step, is_last):
        """At its end: what the members have is the mean of all slots."""
        if not self._has_sum:
            raise RuntimeError(f"step {step} has gone through its slots and not taken their mean: call step.average() behind the loop")
        if self.round == 0 and not is_last:
            raise RuntimeError(f"step {step} has not gone through its slots: compute in `for slot in step.slots: …; step.add()`, and call "
                               "step.average() behind it, or make the Elastic without slots")


def slots_of(asked):
    """The Slots of so many, None: as many as the launcher says. None for 0. Which numbers can be, strategy.micro_batches says, for it
    tells the launcher of a refusal."""
    try:
        is_number = operator.index(asked) >= 0 and not isinstance(asked, bool)
    except TypeError:
        is_number = asked is None
    if not is_number:
        raise ValueError("slots must be a whole number of slots, None for that of `muster run --constant-batch`, or 0 for steps without slots, "
                         f"got {asked!r}")
    return None if asked == 0 else Slots(asked)
