"""The c10d backend "muster": unmodified DistributedDataParallel programs on CPUs. FSDP is not tried.

    import muster.torch.backend
    muster.torch.backend.init_process_group()      # in place of torch.distributed.init_process_group()

The size of the world is fixed, and a worker that has died does not come back: all_reduce, broadcast, barrier and
reduce_scatter go on among the others, and so do messages. Operations that have a place for each rank raise
muster.Aborted. For a worker that comes back use muster.torch.Elastic. No TCPStore is in the path: members find each
other as those of any job do.
"""

import atexit
import sys

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _Base, Work as _BaseWork, _create_work_from_future
from torch.futures import Future

import muster


_OPS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "mean",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.PRODUCT: "prod",
    dist.ReduceOp.BAND: "and",
    dist.ReduceOp.BOR: "or",
    dist.ReduceOp.BXOR: "xor",
}
_strategy = None  # this process's, from the rendezvous on
_messages = []  # requests that nobody may have waited for


def _op_of(options):
    for op, name in _OPS.items():
        if options.reduceOp == op:
            return name
    raise NotImplementedError(f"the backend muster has no {options.reduceOp}")


def _array_of(tensor):
    """Memory of a contiguous tensor, and the name of its type where NumPy lacks it."""
    if tensor.device.type != "cpu":
        raise NotImplementedError(f"the backend muster takes tensors on the CPU, got one on {tensor.device}")
    flat = tensor.detach().view(-1)
    return (flat.view(torch.int16).numpy(), "bf16") if tensor.dtype == torch.bfloat16 else (flat.numpy(), None)


def _work(result):
    future = Future()
    future.set_result(result)
    return _create_work_from_future(future)


class _Message(_BaseWork):
    """A send or receive that goes on; `then` runs when it has ended well."""

    def __init__(self, request, then=None):
        super().__init__()
        self.request, self.then = request, then
        _messages.append(self)

    def is_completed(self):
        return self.request.done

    def wait(self, timeout=None):
        if self in _messages:
            _messages.remove(self)
        self.request.wait()
        then, self.then = self.then, None
        if then:
            then()
        return True


class Backend(_Base):
    """Each operation but a message is done when its call returns: a thread would gain nothing on CPUs."""

    def __init__(self, rank, size):
        super().__init__(rank, size)
        self.world = size
        self.has_lost = False  # a member is gone: no operation that has a place for each ends well

    def getBackendName(self):
        return "muster"

    def _in_place(self, tensor, call, *words):
        """Call it on the memory of the tensor, or of a contiguous copy."""
        memory = tensor if tensor.is_contiguous() else tensor.contiguous()
        if memory.numel() > 0:
            array, dtype = _array_of(memory)
            call(array, *words, dtype=dtype)
        if memory is not tensor:
            tensor.detach().copy_(memory)

    def allreduce(self, tensors, options=None):
        for tensor in tensors:
            self._in_place(tensor, _strategy.all_reduce, _op_of(options) if options else "sum")
        return _work(tensors)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors, options):
        for tensor in tensors:
            self._in_place(tensor, _strategy.broadcast, options.rootRank)
        return _work(tensors)

    def reduce(self, tensors, options):
        for tensor in tensors:
            self._in_place(tensor, _strategy.reduce, _op_of(options), options.rootRank)
        return _work(tensors)

    def _pair(self, call, given, output, *words):
        """The call on contiguous memory of both."""
        memory = output if output.is_contiguous() else torch.empty_like(output, memory_format=torch.contiguous_format)
        if memory.numel() > 0:
            source, dtype = _array_of(given.contiguous())
            call(source, _array_of(memory)[0], *words, dtype=dtype)
        if memory is not output:
            output.detach().copy_(memory)

    def all_gather_single(self, output, given, options=None):
        self._pair(_strategy.all_gather, given, output)
        return _work([output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, givens, options=None):
        for output, given in zip(outputs, givens):
            self._pair(_strategy.all_gather, given, output)
        return _work(outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outputs, givens, options=None):
        for parts, given in zip(outputs, givens):
            gathered = torch.empty((self.world, *given.shape), dtype=given.dtype)
            self._pair(_strategy.all_gather, given, gathered)
            for part, each in zip(parts, gathered):
                part.detach().copy_(each)
        return _work(outputs)

    def gather(self, outputs, givens, options):
        for at, given in enumerate(givens):
            is_root = self.rank() == options.rootRank
            source, dtype = _array_of(given.contiguous())
            gathered = torch.empty((self.world, *given.shape), dtype=given.dtype) if is_root else None
            if given.numel() > 0:
                _strategy.gather(source, _array_of(gathered)[0] if is_root else None, options.rootRank, dtype=dtype)
            for part, each in zip(outputs[at] if is_root else (), gathered if is_root else ()):
                part.detach().copy_(each)
        return _work(outputs)

    def scatter(self, outputs, givens, options):
        for at, output in enumerate(outputs):
            is_root = self.rank() == options.rootRank
            whole = torch.stack([part.detach() for part in givens[at]]) if is_root else None
            memory = torch.empty_like(output, memory_format=torch.contiguous_format)
            if memory.numel() > 0:
                array, dtype = _array_of(memory)
                _strategy.scatter(_array_of(whole)[0] if is_root else None, array, options.rootRank, dtype=dtype)
            output.detach().copy_(memory)
        return _work(outputs)

    def _scatter_sum(self, output, given, options):
        """When a member has gone, the reduction of all among the others, of which each keeps its part."""
        if not self.has_lost:
            try:
                self._pair(_strategy.reduce_scatter, given.detach(), output, _op_of(options))
                return
            except muster.Aborted:  # on all, and the input is as it was
                self.has_lost = True
        whole = given.detach().clone(memory_format=torch.contiguous_format)
        self._in_place(whole, _strategy.all_reduce, _op_of(options))
        output.detach().copy_(whole.view(self.world, -1)[self.rank()].view_as(output))

    def reduce_scatter_single(self, output, given, options):
        self._scatter_sum(output, given, options)
        return _work([output])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, givens, options):
        for output, given in zip(outputs, givens):
            self._scatter_sum(output, given, options)
        return _work(outputs)

    def reduce_scatter(self, outputs, givens, options):
        for output, parts in zip(outputs, givens):
            self._scatter_sum(output, torch.stack([part.detach() for part in parts]), options)
        return _work(outputs)

    def all_to_all_single(self, output, given, output_sizes, input_sizes, options=None):
        if len(set(output_sizes) | set(input_sizes)) <= 1:
            self._pair(_strategy.all_to_all, given, output)
        else:
            self._exchange(given, output, [size * given[:1].numel() for size in input_sizes or self._even(given)],
                           [size * output[:1].numel() for size in output_sizes or self._even(output)])
        return _work([output])

    alltoall_base = all_to_all_single

    def _even(self, tensor):
        return [tensor.shape[0] // self.world] * self.world

    def _exchange(self, given, output, input_counts, output_counts):
        memory = torch.empty_like(output, memory_format=torch.contiguous_format)
        source, dtype = _array_of(given.contiguous())
        _strategy.all_to_all_uneven(source, _array_of(memory)[0], input_counts, output_counts, dtype=dtype)
        output.detach().copy_(memory)

    def alltoall(self, outputs, givens, options=None):
        given = torch.cat([each.detach().reshape(-1) for each in givens])
        output = torch.empty(sum(each.numel() for each in outputs), dtype=given.dtype)
        self._exchange(given, output, [each.numel() for each in givens], [each.numel() for each in outputs])
        for each, part in zip(outputs, output.split([each.numel() for each in outputs])):
            each.detach().copy_(part.view_as(each))
        return _work(outputs)

    def _message(self, kind, tensors, rank, tag):
        if tag != 0 or len(tensors) != 1:
            raise NotImplementedError("the backend muster has messages of one tensor, without tags: they are counted")
        tensor = tensors[0]
        memory = tensor.detach() if tensor.is_contiguous() else tensor.detach().contiguous()
        if memory.numel() == 0:
            return _work(tensors)
        array, dtype = _array_of(memory)
        if kind == "send":
            return _Message(_strategy.start("send", array, rank=rank, dtype=dtype))
        then = None if tensor.is_contiguous() else lambda: tensor.detach().copy_(memory)
        return _Message(_strategy.start("receive", None, array, rank=rank, dtype=dtype), then)

    def send(self, tensors, rank, tag):
        return self._message("send", tensors, rank, tag)

    def recv(self, tensors, rank, tag):
        return self._message("receive", tensors, rank, tag)

    def barrier(self, options=None):
        _strategy.barrier()
        return _work([])

    def shutdown(self):
        _close()


def _close():
    """The work is done."""
    global _strategy
    strategy, _strategy = _strategy, None
    while strategy is not None and not strategy.closed and _messages:
        _messages[0].wait()
    if strategy is not None and not strategy.closed:
        strategy.commit()
        strategy.close()


def _on_exit():
    """A program that ends without destroy_process_group; after an exception the library says that it has failed."""
    if not hasattr(sys, "last_value"):
        _close()


def _rendezvous(url, **_):
    """No process is asked: the members of the job have found each other in begin."""
    global _strategy
    _strategy = muster.Strategy()
    _strategy.begin()
    atexit.register(_on_exit)
    yield dist.HashStore(), _strategy.rank, _strategy.size


def _create(store, rank, size, timeout):
    if _strategy is None or size != _strategy.size:
        raise NotImplementedError("the backend muster has one group, of all members: muster.torch.backend.init_process_group()")
    return Backend(rank, size)


def init_process_group(**options):
    """torch.distributed.init_process_group on the members of this job. Ranks are those of muster, from 0."""
    dist.init_process_group("muster", init_method="muster://", **options)


dist.Backend.register_backend("muster", _create, devices=["cpu"])
dist.register_rendezvous_handler("muster", _rendezvous)
