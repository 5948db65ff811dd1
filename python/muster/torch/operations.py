"""The operations of c10d on the members of a group (group.py): what PyTorch's programs call."""

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work as _BaseWork
from torch.futures import Future

import muster
from muster.arrays import memory_of

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


_OPS_OF_BOOL = {"sum": "or", "prod": "and"}  # as gloo and NCCL have them


def _op_of(options, tensor):
    """The name of the reduction, and what each member's values are multiplied by before it: PREMUL_SUM's number, or None."""
    for op, name in _OPS.items():
        if options.reduceOp == op:
            if tensor.is_complex() and name not in ("sum", "mean"):
                raise NotImplementedError(f"the backend muster has sums and means of complex numbers, got {options.reduceOp}")
            return _OPS_OF_BOOL.get(name, name) if tensor.dtype == torch.bool else name, None
    if options.reduceOp == dist.ReduceOp.PREMUL_SUM:
        return "sum", options.reduceOp.__getstate__()[1]
    raise NotImplementedError(f"the backend muster has no {options.reduceOp}")


def _scaled(tensor, factor):
    """The tensor, or a contiguous copy of it that is multiplied."""
    return tensor if factor is None else (tensor.detach() * factor).to(tensor.dtype).contiguous()


def array_of(tensor):
    """Memory of a contiguous tensor, and the name of its type where NumPy lacks it."""
    if tensor.device.type != "cpu":
        raise NotImplementedError(f"the backend muster takes tensors on the CPU, got one on {tensor.device}")
    if tensor.layout is not torch.strided:
        raise NotImplementedError(f"the backend muster takes dense tensors, got one of layout {tensor.layout}: call to_dense(), or make the module "
                                  "without sparse=True")
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.detach())
    return memory_of(tensor.view(-1))


def _flat_array(tensor):
    """The memory of a tensor as one call gives it; None where array_of must look closer. Behind 1 MiB of gradients each call of
    PyTorch runs from cold caches, and takes as long as 50 KiB of an all_reduce."""
    try:
        array = tensor.numpy()
    except (RuntimeError, TypeError):  # it needs gradients, NumPy lacks its type, or it lies on a device
        return None
    return array.reshape(-1) if array.flags.c_contiguous and array.size > 0 and array.dtype.kind != "c" else None


class _Done(_BaseWork):
    """An operation that has ended."""

    def __init__(self, result):
        super().__init__()
        self._result = result

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True

    is_success = is_completed

    def result(self):
        return self._result

    def get_future(self):
        future = Future()
        future.set_result(self._result)
        return future


def work_of(result):
    return _Done(result)


class _Message(_BaseWork):
    """A send or receive that goes on; `then` runs when it has ended well."""

    def __init__(self, message, then=None, ranks=()):
        super().__init__()
        self.message, self.then, self.ranks = message, then, ranks

    def wait(self, timeout=None):
        self.message.wait()
        then, self.then = self.then, None
        if then:
            then()
        return True

    def source_rank(self):
        """The place of the sender in the group, when wait has returned."""
        return self.ranks.index(self.message.rank)

    _source_rank = source_rank


class Operations:
    """Each operation but a message is done when its call returns: a thread would gain nothing on CPUs."""

    members = None  # group.py

    def getBackendName(self):
        return "muster"

    def _in_place(self, tensor, kind, factor=None, **words):
        """The operation on the memory of the tensor, or of a contiguous copy."""
        array = _flat_array(tensor) if factor is None else None
        if array is not None:
            self.members.run(kind, None, array, None, **words)
            return
        memory = _scaled(tensor, factor)
        if memory.layout is torch.strided and not memory.is_contiguous():
            memory = memory.contiguous()
        if memory.numel() > 0:
            array, dtype = array_of(memory)
            self.members.run(kind, None, array, dtype, **words)
        if memory is not tensor and (kind != "reduce" or words["rank"] == self.rank()):
            tensor.detach().copy_(memory)

    def allreduce(self, tensors, options=None):
        for tensor in tensors:
            op, factor = _op_of(options, tensor) if options else ("sum", None)
            self._in_place(tensor, "all_reduce", factor, op=op)
        return work_of(tensors)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors, options):
        for tensor in tensors:
            self._in_place(tensor, "broadcast", rank=options.rootRank)
        return work_of(tensors)

    def reduce(self, tensors, options):
        for tensor in tensors:
            op, factor = _op_of(options, tensor)
            self._in_place(tensor, "reduce", factor, op=op, rank=options.rootRank)
        return work_of(tensors)

    def _pair(self, kind, given, output, **words):
        """The operation on contiguous memory of both."""
        memory = output if output.is_contiguous() else torch.empty_like(output, memory_format=torch.contiguous_format)
        if memory.numel() > 0:
            source, dtype = array_of(given.contiguous())
            self.members.run(kind, source, array_of(memory)[0], dtype, **words)
        if memory is not output:
            output.detach().copy_(memory)

    def all_gather_single(self, output, given, options=None):
        self._pair("all_gather", given, output)
        return work_of([output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, givens, options=None):
        for output, given in zip(outputs, givens):
            self._pair("all_gather", given, output)
        return work_of(outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outputs, givens, options=None):
        for parts, given in zip(outputs, givens):
            gathered = torch.empty((len(self.members.ranks), *given.shape), dtype=given.dtype)
            self._pair("all_gather", given, gathered)
            for part, each in zip(parts, gathered):
                part.detach().copy_(each)
        return work_of(outputs)

    def allgather_coalesced(self, outputs, givens, options=None):
        """outputs: for each rank one tensor for each of givens."""
        self.allgather([list(parts) for parts in zip(*outputs)], givens)
        return work_of(outputs)

    def gather(self, outputs, givens, options):
        for at, given in enumerate(givens):
            is_root = self.rank() == options.rootRank
            source, dtype = array_of(given.contiguous())
            gathered = torch.empty((len(self.members.ranks), *given.shape), dtype=given.dtype) if is_root else None
            if given.numel() > 0:
                self.members.run("gather", source, array_of(gathered)[0] if is_root else None, dtype, rank=options.rootRank)
            for part, each in zip(outputs[at] if is_root else (), gathered if is_root else ()):
                part.detach().copy_(each)
        return work_of(outputs)

    def scatter(self, outputs, givens, options):
        for at, output in enumerate(outputs):
            is_root = self.rank() == options.rootRank
            whole = torch.stack([part.detach() for part in givens[at]]) if is_root else None
            memory = torch.empty_like(output, memory_format=torch.contiguous_format)
            if memory.numel() > 0:
                array, dtype = array_of(memory)
                self.members.run("scatter", array_of(whole)[0] if is_root else None, array, dtype, rank=options.rootRank)
            output.detach().copy_(memory)
        return work_of(outputs)

    def _scatter_sum(self, output, given, options):
        """When a member has gone, the reduction of all among the others, of which each keeps its part."""
        op, factor = _op_of(options, given)
        given = _scaled(given, factor)
        if not self.members.has_lost:
            try:
                self._pair("reduce_scatter", given.detach(), output, op=op)
                return
            except muster.Aborted:  # on all, and the input is as it was
                if not self.members.goes_on:
                    raise
                self.members.has_lost, self.members.strategy._aborted = True, False
        whole = given.detach().clone(memory_format=torch.contiguous_format)
        self._in_place(whole, "all_reduce", op=op)
        output.detach().copy_(whole.view(len(self.members.ranks), -1)[self.rank()].view_as(output))

    def reduce_scatter_single(self, output, given, options):
        self._scatter_sum(output, given, options)
        return work_of([output])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, givens, options):
        for output, given in zip(outputs, givens):
            self._scatter_sum(output, given, options)
        return work_of(outputs)

    def reduce_scatter(self, outputs, givens, options):
        for output, parts in zip(outputs, givens):
            self._scatter_sum(output, torch.stack([part.detach() for part in parts]), options)
        return work_of(outputs)

    def all_to_all_single(self, output, given, output_sizes, input_sizes, options=None):
        if not output_sizes and not input_sizes:  # a member's equal sizes say nothing of the others'
            self._pair("all_to_all", given, output)
        else:
            self._exchange(given, output, [size * given[:1].numel() for size in input_sizes or self._even(given)],
                           [size * output[:1].numel() for size in output_sizes or self._even(output)])
        return work_of([output])

    alltoall_base = all_to_all_single

    def _even(self, tensor):
        return [tensor.shape[0] // len(self.members.ranks)] * len(self.members.ranks)

    def _exchange(self, given, output, input_counts, output_counts):
        memory = torch.empty_like(output, memory_format=torch.contiguous_format)
        source, dtype = array_of(given.contiguous())
        numbers = 2 if output.is_complex() else 1  # of an element
        self.members.run("all_to_all_uneven", source, array_of(memory)[0], dtype, input_counts=[numbers * each for each in input_counts],
                         output_counts=[numbers * each for each in output_counts])
        output.detach().copy_(memory)

    def alltoall(self, outputs, givens, options=None):
        given = torch.cat([each.detach().reshape(-1) for each in givens])
        output = torch.empty(sum(each.numel() for each in outputs), dtype=given.dtype)
        self._exchange(given, output, [each.numel() for each in givens], [each.numel() for each in outputs])
        for each, part in zip(outputs, output.split([each.numel() for each in outputs])):
            each.detach().copy_(part.view_as(each))
        return work_of(outputs)

    def _message(self, kind, tensors, places, tag):
        if len(tensors) != 1:
            raise NotImplementedError("the backend muster has messages of one tensor")
        tensor = tensors[0]
        memory = tensor.detach() if tensor.is_contiguous() else tensor.detach().contiguous()
        array, key = array_of(memory)[0], (self.members.number, tag)
        ranks = [self.members.ranks[place] for place in places]
        if kind == "send":
            return _Message(self.members.mail.send(ranks[0], key, array))
        then = None if tensor.is_contiguous() else lambda: tensor.detach().copy_(memory)
        return _Message(self.members.mail.receive_any(ranks, key, array), then, self.members.ranks)

    def send(self, tensors, rank, tag):
        return self._message("send", tensors, [rank], tag)

    def recv(self, tensors, rank, tag):
        return self._message("receive", tensors, [rank], tag)

    def recv_anysource(self, tensors, tag):
        others = [place for place in range(len(self.members.ranks)) if place != self.rank()]
        if not others:
            raise ValueError("a message from any rank needs another member of the group, and there is none")
        return self._message("receive", tensors, others, tag)

    def barrier(self, options=None):
        self.members.run("barrier")
        return work_of([])
