"""Elastic data-parallel training: a worker dies, the others lose milliseconds and no step.

    import numpy, muster

    total = numpy.zeros(1)
    with muster.Strategy() as strategy:
        strategy.register("total", total)
        for _ in strategy.steps(1000):           # a joiner gets the others' total here
            share = numpy.ones(1)
            strategy.all_reduce(share)
            total += share
            strategy.commit()

`muster run -n 4 -- python counter.py` starts four of them. See docs/python.md.
"""

import importlib
import sys

from muster import _muster
from muster._muster import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    JobOver,
    MicroBatches,
    Mismatch,
    NotFound,
    PermissionDenied,
    Request,
    ResourceExhausted,
    RoundOver,
    Split,
    StateMismatch,
    Tensor,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    Unknown,
    __version__,
)


def __getattr__(name):
    """Import the parts that need numpy, PyTorch or JAX only when they are asked for."""
    if name == "Elastic":
        from muster.elastic import Elastic
        return Elastic
    if name in ("Replica", "Replicas"):
        return getattr(importlib.import_module("muster.replicas"), name)
    if name in ("data", "elastic", "jax", "params", "publication", "replicas", "torch"):
        return importlib.import_module(f"muster.{name}")
    raise AttributeError(f"module 'muster' has no attribute {name!r}")


class Strategy(_muster.Strategy):
    """A member of a training job; see include/muster/strategy.h for what each call promises.

    Opening it does not wait for the others, begin does. Threads may share it: calls wait for one another. Calls raise
    a class of muster.Error for each code; KeyboardInterrupt out of a call that waits abandons the strategy. In a fork
    every call raises RuntimeError.

    As a context it closes itself; an exception inside counts as a failure of this member, which `muster run` starts
    again, while the others go on.
    """

    @property
    def replicas(self):
        """The copies of the model that this member computes side by side, muster.Replicas: as many as `replicas=` says, or
        MUSTER_REPLICAS; or with devices="all", "0,2" or MUSTER_DEVICES one for each of these GPUs; otherwise one."""
        from muster.replicas import Replicas
        return Replicas(self)

    def __enter__(self):
        return self

    def steps(self, until):
        """Begins each step, and gives its number, until `until` is committed, by this member or by those who have given
        it their state. When the job is over before this late worker is back, the program ends here with exit code 0:
        what follows the loop is for workers that have done the work."""
        try:
            while (step := self.begin(until)) is not None:
                yield step
        except JobOver:
            self.close()
            sys.exit(0)

    def __exit__(self, kind, value, traceback):
        if kind is not None and not issubclass(kind, JobOver) and not self.closed:
            self.abandon(f"{kind.__name__}: {value}")
        self.close()
        return False
