"""Shared by the package: memory of PyTorch tensors, and types that NumPy lacks."""

import sys
import warnings

import numpy

NUMPY_TYPES = {
    "f32": numpy.float32,
    "f64": numpy.float64,
    "f16": numpy.float16,
    "bf16": numpy.uint16,  # the bits
    "i32": numpy.int32,
    "i64": numpy.int64,
    "u32": numpy.uint32,
    "u64": numpy.uint64,
    "i8": numpy.int8,
    "u8": numpy.uint8,
    "bool": numpy.bool_,
}


def memory_of(array):
    """The memory of a PyTorch tensor on the CPU, or what it is already; and "bf16", which NumPy lacks, or None."""
    if not hasattr(array, "detach"):
        return array, None
    tensor = array.detach()
    if tensor.dtype == sys.modules["torch"].bfloat16:
        return tensor.view(sys.modules["torch"].int16).numpy(), "bf16"
    return tensor.numpy(), None


def torch_of(tensor):
    """A muster.Tensor as one of PyTorch, in the same memory."""
    import torch
    types = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32,
             "i64": torch.int64, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may be read only, which PyTorch does not know
        return torch.frombuffer(tensor, dtype=types[tensor.dtype])
