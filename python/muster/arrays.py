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
    "i16": numpy.int16,
    "u16": numpy.uint16,
    "f8e4m3": numpy.uint8,  # the bits
    "f8e5m2": numpy.uint8,
}


def with_peer_names(words):
    """Options of an object with connections: tls_peer_names, one name or some, as the tuple that the C part takes."""
    names = words.get("tls_peer_names")
    if names is None:
        return {key: value for key, value in words.items() if key != "tls_peer_names"}
    names = (names,) if isinstance(names, str) else tuple(names)
    if not all(isinstance(each, str) and each for each in names):
        raise TypeError(f"tls_peer_names must be a name, or a list of names, got {names!r}")
    return {**words, "tls_peer_names": names}


def memory_of(array):
    """The memory of a PyTorch tensor on the CPU, or what it is already; and the name of its type where NumPy lacks it
    ("bf16", "f8e4m3", "f8e5m2"), or None."""
    if not hasattr(array, "detach"):
        return array, None
    tensor = array.detach()
    torch = sys.modules["torch"]
    lacked = {torch.bfloat16: "bf16", torch.float8_e4m3fn: "f8e4m3", torch.float8_e5m2: "f8e5m2"}.get(tensor.dtype)
    if lacked is None:
        return tensor.numpy(), None
    return tensor.view(torch.int16 if tensor.itemsize == 2 else torch.uint8).numpy(), lacked


def torch_of(tensor):
    """A muster.Tensor as one of PyTorch, in the same memory."""
    import torch
    types = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32,
             "i64": torch.int64, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool, "i16": torch.int16, "u16": torch.uint16,
             "u32": torch.uint32, "u64": torch.uint64, "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may be read only, which PyTorch does not know
        return torch.frombuffer(tensor, dtype=types[tensor.dtype])
