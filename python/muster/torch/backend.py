"""The c10d backend "muster": unmodified DistributedDataParallel and FSDP2 programs on CPUs.

    import muster.torch.backend
    muster.torch.backend.init_process_group()      # or torch.distributed.init_process_group("muster")

The size of the world is fixed, and a worker that has died does not come back: all_reduce, broadcast, barrier and
reduce_scatter go on among the others, and so do messages. Operations that have a place for each rank raise
muster.Aborted. For a worker that comes back use muster.torch.Elastic. No TCPStore is in the path: members find each
other as those of any job do. The operations of groups of some members are made of messages (group.py), which have tags
(mail.py, inbox.py).

    muster.torch.backend.init_process_group(elastic=True)

is for programs with muster.torch.Elastic: the group consists of the members of the step, and outside of steps this process
alone, so that constructors which call the others have their answer.
"""

import atexit
import functools
import os
import sys
import time
import weakref
import zlib

import torch
import torch.distributed as dist
from torch.autograd import profiler
from torch._C._distributed_c10d import Backend as _Base

import muster
from muster.torch.group import Everyone, OfStep, Subgroup
from muster.torch.mail import Mail
from muster.torch.operations import Operations, array_of, work_of

_URL, _ELASTIC_URL, _RECONFIGURABLE_URL = "muster://", "muster://elastic", "muster://reconfigure"
_RECONFIGURE_S, _PAUSE_S = 300, 0.01
_strategy = None  # this process's, from the rendezvous on; inside of Elastic it is that one's
_everyone = None  # the members of the first group


class Backend(Operations, _Base):
    """A group whose size is fixed."""

    def __init__(self, rank, members):
        super().__init__(rank, len(members.ranks))
        self.members = members
        self._split_count = 0

    @property
    def options(self):
        return _Base.Options("muster")

    # PyTorch's trampoline calls itself without end where one of these is not overridden.
    supports_splitting = property(lambda self: True)
    supports_coalescing = supports_shrinking = supports_reconfigure = supports_window = property(lambda self: False)
    _supports_time_estimate = supports_coalescing

    def split(self, store, ranks, options):
        """A group of some of these ranks, in this order; None for the others."""
        self._split_count += 1
        ranks = [self.members.ranks[rank] for rank in ranks]
        return _backend_of(ranks, f"{self.members.number}:{self._split_count}:{ranks}")

    def shutdown(self):
        if self.members is _everyone:  # the others end with it
            _close()


class ElasticGroup(Operations, dist.ProcessGroup):
    """A group whose rank and size are those of the step: a Backend's do not change."""

    def __init__(self, members):
        super().__init__(0, 1)
        self.members = members
        self._name = self._description = ""

    def getRank(self):
        return self.members.rank

    def getSize(self):
        return len(self.members.ranks)

    def setGroupName(self, name):
        self._name = name

    def getGroupName(self):
        return self._name

    def setGroupDesc(self, description):
        self._description = description

    def getGroupDesc(self):
        return self._description


class _Agreed:
    """What an Elastic is to OfStep."""

    weight = 1

    def __init__(self, strategy):
        self.strategy = strategy

    rank = property(lambda self: self.strategy.rank)
    size = property(lambda self: self.strategy.size)


class ReconfigurableGroup(ElasticGroup):
    """PyTorch's own interface for groups that change (torch 2.15): the caller agrees on who is there, and redoes what
    has failed. Members are told apart by muster, so handles only count them."""

    supports_reconfigure = property(lambda self: True)

    def get_reconfigure_handle(self):
        return f"{_strategy.task}:{os.getpid()}"

    def reconfigure(self, options):
        """Begin anew until the members are as many as the handles. Ranks are in the order of tasks."""
        handles = list(options.handles)
        tasks = [int(each.partition(":")[0]) for each in handles]
        if isinstance(options.handles, list) and tasks != sorted(tasks):
            raise ValueError(f"handles must be in the order of tasks, as ranks are, got {handles}")
        deadline = time.monotonic() + (options.timeout.total_seconds() if options.timeout else _RECONFIGURE_S)
        _strategy.begin()
        while _strategy.size != len(handles):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the group must have {len(handles)} members, got {_strategy.size}")
            time.sleep(_PAUSE_S)
            _strategy.commit()  # an empty step: who comes back enters after a commit
            _strategy.begin()
        self.members.begin()
        return work_of([])

    def shutdown(self):
        _close()


def _close():
    """The work is done."""
    global _strategy
    strategy, _strategy = _strategy, None
    if strategy is not None and not strategy.closed:
        if _everyone.mail is not None:
            _everyone.mail.close()
            strategy.commit()
        strategy.close()


def _on_exit():
    """A program that ends without destroy_process_group; after an exception the library says that it has failed."""
    if not hasattr(sys, "last_value"):
        _close()


def _begin_only_step():
    """A group whose size is fixed consists of the members of step 1, which ends with the job."""
    if os.environ.get("MUSTER_REJOIN") == "1":
        print("muster: this worker was started again, and its group, whose size is fixed, goes on without it: it waits until the others have "
              "ended. Use init_process_group(elastic=True) with muster.torch.Elastic, in which it would come back; or muster run "
              "--max-restarts 0, by which it is not started again", file=sys.stderr, flush=True)
    try:
        step = _strategy.begin(1)
    except muster.JobOver:
        step = None
    if step is None:
        _strategy.close()
        sys.exit(0)


def _open(timeout):
    try:
        return muster.Strategy(op_timeout=timeout.total_seconds() if timeout else None)
    except muster.FailedPrecondition as error:
        if _everyone is None:
            raise
        raise RuntimeError("init_process_group must be called once in a process of `muster run`: destroy_process_group() ends this worker's part in "
                           "the job; keep the group until the program ends, and make further ones by torch.distributed.new_group()") from error


def _rendezvous(url, timeout=None, **_):
    """No process is asked: the members of the job have found each other in begin."""
    global _strategy, _everyone
    if url == _ELASTIC_URL:
        _everyone = OfStep()
        yield dist.HashStore(), 0, 1
        return
    if url == _RECONFIGURABLE_URL:
        _strategy = _open(timeout)
        _everyone = OfStep()
        _everyone.elastic = _Agreed(_strategy)
        atexit.register(_on_exit)
        yield dist.HashStore(), 0, 1
        return
    _strategy = _open(timeout)
    _begin_only_step()
    _everyone = Everyone(_strategy, Mail(_strategy))
    atexit.register(_on_exit)
    yield dist.HashStore(), _strategy.rank, _strategy.size


def _backend_of(ranks, name):
    """The backend of a further group; None if this process is not in it."""
    if _strategy.rank not in ranks:
        return None
    number = 2**32 + zlib.crc32(name.encode())  # not that of the first group
    is_all = ranks == _everyone.ranks
    members = Everyone(_strategy, _everyone.mail, number) if is_all else Subgroup(ranks, _strategy.rank, number, _everyone.mail)
    return Backend(ranks.index(_strategy.rank), members)


def _create(given, options):
    if isinstance(_everyone, OfStep):
        if given.global_ranks_in_group:
            raise NotImplementedError("a group that is elastic has no groups of some of its members, whose ranks change: use it whole, "
                                      "or call init_process_group() without elastic and enable_reconfigure")
        return ElasticGroup(_everyone) if _strategy is None else ReconfigurableGroup(_everyone)
    if _strategy is None:
        raise RuntimeError("the backend muster needs its rendezvous: call muster.torch.backend.init_process_group(), or import muster.torch.backend "
                           "before `from torch.distributed import init_process_group`, and give that no store and no init_method")
    if not given.global_ranks_in_group:
        return Backend(_strategy.rank, _everyone)
    return _backend_of(list(given.global_ranks_in_group), given.group_id)


def init_process_group(elastic=False, enable_reconfigure=False, **options):
    """torch.distributed.init_process_group on the members of this job. Ranks are those of muster, from 0.

    elastic: the program has a muster.torch.Elastic, made after this; rank and size are those of its step.

    enable_reconfigure: the group is empty until torch.distributed._reconfigure, which PyTorch has from 2.15 on, says
    which members are there; the operations that failed are the program's to do again.
    """
    url = _ELASTIC_URL if elastic else _RECONFIGURABLE_URL if enable_reconfigure else _URL
    dist.init_process_group("muster", init_method=url, **options)


def average(gradients):
    """The mean of a tensor over the members of the first group that give theirs, in place."""
    _everyone.average(*array_of(gradients))


_plain_recv_anysource = dist.ProcessGroup.recv_anysource
_plain_allreduce = dist.ProcessGroup.allreduce
_backends = weakref.WeakKeyDictionary()  # by group: by type of device, weak; of another module: what gives None


def _backend_behind(group, tensor):
    """The backend of this module that PyTorch would call for the group and the tensor, or None."""
    known = _backends.get(group)
    if known is None:
        known = _backends[group] = {}
    kind = tensor.device.type
    if kind not in known:
        try:
            backend = group._get_backend(tensor.device)
        except RuntimeError:  # the group has none for this device
            return None
        known[kind] = weakref.ref(backend) if isinstance(backend, Backend) else lambda: None
    return known[kind]()


def _recv_anysource(group, tensors, tag):
    """dist.recv asks the work for its source, which a work of Python cannot tell through PyTorch's trampoline (torch 2.15):
    a backend of this module is called without it."""
    backend = _backend_behind(group, tensors[0])
    return backend.recv_anysource(tensors, tag) if backend else _plain_recv_anysource(group, tensors, tag)


def _is_usual_call(args, words):
    """That of dist.all_reduce with a tensor of PyTorch itself, whose operators nobody watches."""
    return (not words and len(args) == 2 and isinstance(args[0], list) and len(args[0]) == 1
            and type(args[0][0]) in (torch.Tensor, torch.nn.Parameter) and isinstance(args[1], dist.AllreduceOptions)
            and not profiler._is_profiler_enabled and torch._C._len_torch_dispatch_stack() == 0)


def _allreduce(group, *args, **words):
    """dist.all_reduce without PyTorch's dispatcher and its trampoline, which take as long as the sum of 64 KiB, unless a
    profiler or a mode such as CommDebugMode watches the operators."""
    if _is_usual_call(args, words):
        backend = _backend_behind(group, args[0][0])
        if backend:
            return backend.allreduce(*args)
    return _plain_allreduce(group, *args, **words)


_plain_init = dist.init_process_group


@functools.wraps(_plain_init)
def _init_process_group(backend=None, init_method=None, *args, **words):
    """PyTorch's, whose rendezvous for the backend muster is muster's own."""
    if backend == "muster" and init_method is None and len(args) < 4 and words.get("store") is None:
        init_method = _URL
    return _plain_init(backend, init_method, *args, **words)


def members_of_step():
    """What an Elastic tells of its steps, if the group is elastic."""
    return _everyone if isinstance(_everyone, OfStep) else None


dist.Backend.register_backend("muster", _create, extended_api=True, devices=["cpu"])
dist.register_rendezvous_handler("muster", _rendezvous)
dist.ProcessGroup.recv_anysource = _recv_anysource
dist.ProcessGroup.allreduce = _allreduce
dist.init_process_group = dist.distributed_c10d.init_process_group = _init_process_group
