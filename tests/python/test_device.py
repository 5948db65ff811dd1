"""Arrays in the memory of a CUDA device: state, operations and requests, and kill -9. The driver is that of
tests/fake_gpu, whose device memory kills a process that touches it without the driver."""
import os
import pathlib

import numpy

FAKES = pathlib.Path(os.environ["MUSTER_BINARY_DIR"]).absolute() / "lib" / "fake_gpu"
FAKE = {"MUSTER_CUDA_LIBRARY": str(FAKES / "libcuda.so.1"), "MUSTER_NCCL_LIBRARY": str(FAKES / "23007" / "libnccl.so.2"),
        "FAKE_CUDA_GUARDED": "1"}

# As CuPy, Numba and PyTorch have them: __cuda_array_interface__.
ARRAYS = """
import ctypes
cuda = ctypes.CDLL(os.environ["MUSTER_CUDA_LIBRARY"])
class Array:
    def __init__(self, values, **fields):
        values = numpy.asarray(values)
        context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
        assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(values.nbytes)) == 0
        self.shape, self.dtype, self.address, self.nbytes = values.shape, values.dtype, address, ctypes.c_size_t(values.nbytes)
        self.__cuda_array_interface__ = {"shape": values.shape, "typestr": values.dtype.str, "version": 3,
                                         "data": (address.value, False), **fields}
        self.set(values)
    def set(self, values, stream=None):
        self.kept = numpy.array(values, self.dtype)  # the stream reads it later
        assert cuda.cuMemcpyHtoDAsync_v2(self.address, ctypes.c_void_p(self.kept.ctypes.data), self.nbytes, stream) == 0
    def get(self):
        values = numpy.empty(self.shape, self.dtype)
        assert cuda.cuMemcpyDtoHAsync_v2(ctypes.c_void_p(values.ctypes.data), self.address, self.nbytes, None) == 0
        assert cuda.cuStreamSynchronize(None) == 0
        return values
"""


def start(job, program, n, *options, **env):
    return job(ARRAYS + program, n, *options, env={**FAKE, **env})


def test_state_and_gradients_on_the_device_survive_a_kill(job):
    running = start(job, """
weights, gradient = Array(numpy.zeros(100_000)), Array(numpy.zeros(1000, "f4"))
with muster.Strategy() as strategy:
    strategy.register("weights", weights)
    is_over, stop = False, numpy.zeros(1)
    while not is_over:
        try:
            strategy.begin()
            stop[0] = os.path.exists("stop")
            strategy.all_reduce(stop, "max")
            gradient.set(numpy.full(1000, strategy.rank + 1, "f4"))
            strategy.all_reduce_weighted(gradient, 1)
        except muster.Aborted:
            continue
        mean = gradient.get()[0]
        assert mean == (strategy.contributors + 1) / 2 or strategy.contributors < strategy.size, (mean, strategy.size)
        weights.set(numpy.full(100_000, strategy.step))
        strategy.commit()
        say("step", strategy.step, strategy.size, strategy.restored)
        is_over = stop[0] > 0
    assert (weights.get() == strategy.step).all()
""", 3, FAKE_CUDA_LAZY="1")
    running.wait_step(3)
    running.kill(1)
    running.wait_until(lambda: any(words[0] == "step" and words[3] == "True" for _, _, words in running.said(1)), "the rejoin")
    running.wait_step(running.step() + 3)
    running.stop()
    summary = running.end()
    assert summary["identical"] is True, summary


def test_the_state_of_elastic_may_be_there(job):
    running = start(job, """
weights, gradient = Array(numpy.zeros(5)), Array(numpy.zeros(5))
elastic = muster.Elastic({"weights": weights}, extra={"seen": (seen := {"steps": 0})})
stop = numpy.zeros(1)
for step in elastic.steps(1_000_000):
    number = step.step
    with step:
        stop[0] = os.path.exists("stop")
        elastic.strategy.all_reduce(stop, "max")
        gradient.set(numpy.full(5, 2.0))
        elastic.strategy.all_reduce_weighted(gradient, 1 + step.rank)
        weights.set(weights.get() + gradient.get())
        seen["steps"] += 1
    if elastic.step == number:  # else it runs again
        say("step", number, elastic.restored)
        if stop[0] > 0:
            break
assert (weights.get() == 2 * seen["steps"]).all(), (weights.get(), seen)
elastic.close()
""", 2)
    running.wait_step(3)
    running.kill(1)
    running.wait_until(lambda: any(words[2] == "True" for _, _, words in running.said(1)), "the rejoin")
    running.stop()
    summary = running.end()
    assert summary["identical"] is True, summary


def test_operations_and_requests_take_them(job):
    running = start(job, """
def each(*values):
    return Array(numpy.array(values, "f8"))
with muster.Strategy() as strategy:
    strategy.set_stream(None)
    strategy.begin()
    rank = strategy.rank
    mine, both = each(rank + 1.0), Array(numpy.zeros((1, 2)))
    strategy.all_gather(mine, both)
    assert both.get().tolist() == [[1, 2]], both.get()
    strategy.reduce_scatter(both, mine)
    assert mine.get().tolist() == [2 * rank + 2], mine.get()
    mine.set([rank])
    strategy.exchange(mine, 1 - rank, both_first := each(-1.0), 1 - rank)
    assert both_first.get().tolist() == [1 - rank]
    request = strategy.start("all_reduce", output=both, op="max")
    request.wait()
    assert both.get().tolist() == [[1, 2]]
    halves = Array(numpy.array([0x3f80, 0x4000], "i2").view("u2"))
    strategy.all_reduce(halves, dtype="bf16")
    assert halves.get().tolist() == [0x4000, 0x4080]
    strategy.commit()
say("done")
""", 2)
    running.end()
    assert [words for _, _, words in running.said()] == [["done"]] * 2


def test_replicas_take_those_of_pytorch(job):
    """Their dtype is none of NumPy's, and NumPy cannot have their memory."""
    running = start(job, """
class Tensor:
    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, "torch.float32"
        self.__cuda_array_interface__ = array.__cuda_array_interface__
    def __array__(self, *args, **more):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")
def tensor(values, kind="f4", **fields):
    return Tensor(Array(numpy.array(values, kind), **fields))
with muster.Strategy(replicas=2) as strategy:
    strategy.begin()
    replicas = strategy.replicas
    numbers = [replicas.first + i for i in range(2)]
    sums = replicas.reduce([tensor([each, 1]) for each in numbers])
    assert sums.dtype == numpy.float32 and sums.tolist() == [6, 4], sums
    means = replicas.reduce([tensor([[each, 1], [each, 3]], "f8") for each in numbers], "mean", axis=0)
    assert means.dtype == numpy.float64 and means.tolist() == [1.5, 2], means
    whole = replicas.gather([tensor([[each]], "i8") for each in numbers])
    assert whole.dtype == numpy.int64 and whole.tolist() == [[0], [1], [2], [3]], whole
    halves = replicas.reduce([tensor([0x3f80], "u2", typestr="<V2") for _ in numbers], dtype="bf16")
    assert halves.dtype == numpy.uint16 and halves.tolist() == [0x4080], halves
    results = replicas.run(lambda replica: (replica.reduce(tensor([replica.id])).tolist(), replica.gather(tensor([replica.id])).tolist()))
    assert results == [([6], [0, 1, 2, 3])] * 2, results
    gradients = [tensor([each]) for each in numbers]
    replicas.all_reduce(gradients)
    assert [each.array.get().tolist() for each in gradients] == [[1.5]] * 2
    strategy.commit()
say("done")
""", 2)
    running.end()
    assert [words for _, _, words in running.said()] == [["done"]] * 2


def test_the_work_of_an_array_s_own_stream_comes_first(job):
    """A stream that is slow: usleep as its function of the host."""
    running = start(job, """
usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
def stream_of():
    stream = ctypes.c_void_p()
    assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
    return stream
def slowly(array, stream, value):
    assert cuda.cuLaunchHostFunc(stream, usleep, ctypes.c_void_p(100_000)) == 0
    array.set([value], stream)
Array([0.0])    # sets the context
own, other = stream_of(), stream_of()
arrays = [Array([-1.0], stream=own.value) for _ in range(9)] + [Array([-1.0], stream=other.value)]
state = Array([-1.0], stream=own.value)
with muster.Strategy() as strategy:
    slowly(state, own, 5.0)
    strategy.register("state", state)
    strategy.begin()
    assert state.get().tolist() == [5], state.get()
    slowly(arrays[0], own, strategy.rank)
    strategy.all_reduce(arrays[0])
    assert arrays[0].get().tolist() == [1], arrays[0].get()
    slowly(arrays[9], other, strategy.rank)
    slowly(arrays[8], own, strategy.rank)
    strategy.all_reduce(arrays, "max")
    assert [each.get()[0] for each in arrays] == [1] + [-1] * 7 + [1, 1]
    slowly(arrays[1], own, strategy.rank + 2)
    request = strategy.start("all_reduce", output=arrays[1])
    request.wait()
    assert arrays[1].get().tolist() == [5], arrays[1].get()
    slowly(arrays[2], own, strategy.rank + 3)
    strategy.broadcast(arrays[2], 1)
    assert arrays[2].get().tolist() == [4], arrays[2].get()
    strategy.set_stream(own.value)    # the program's: nothing more to wait for
    slowly(arrays[2], own, strategy.rank)
    strategy.all_reduce(arrays[2])
    assert arrays[2].get().tolist() == [1]
    cuda.fake_cuda_set(b"event_fails", ctypes.c_long(1))
    try:
        strategy.all_reduce(arrays[9])
        assert False
    except muster.Unavailable as error:
        assert "the stream 0x" in str(error) and "of a tensor" in str(error), error
    strategy.all_reduce(arrays[9])    # nothing of it was started
    strategy.commit()
say("done")
""", 2)
    running.end()
    assert [words for _, _, words in running.said()] == [["done"]] * 2


def test_an_empty_list_of_devices_is_none(alone):
    """As in CUDA_VISIBLE_DEVICES. A program alone takes all devices otherwise, if it leaves them to the library."""
    done = alone(f"""
os.environ.update({dict(FAKE, FAKE_CUDA_DEVICES="2", MUSTER_DEVICES="")!r})
for options in ({{}}, {{"devices": ""}}, {{"devices": "all"}}):
    with muster.Strategy(**options) as strategy:
        print(len(strategy.replicas), strategy.replicas.gpu(0))
""")

    assert done.stdout.splitlines() == ["1 None", "1 None", "2 0"], done.stderr
    assert "MUSTER_DEVICES is empty, so that no GPU is used" in done.stderr and '"devices is empty' in done.stderr


def test_the_wait_for_a_device_has_a_bound(job):
    running = start(job, """
libc = ctypes.CDLL(None)
gate, array = ctypes.create_string_buffer(64), Array([1.0])
assert libc.sem_init(gate, 0, 0) == 0
with muster.Strategy(device_timeout=2) as strategy:    # begin waits for the device, too
    strategy.register("array", array)
    strategy.begin()
    assert cuda.cuLaunchHostFunc(None, ctypes.cast(libc.sem_wait, ctypes.c_void_p), gate) == 0    # it does nothing more
    try:
        strategy.commit()
    except muster.Unavailable as error:
        say("told", error)
libc.sem_post(gate)
""", 1, "--max-restarts", "0")
    running.end(1)
    assert "device 0 hangs: commit has waited 2." in " ".join(running.said()[0][2])


def test_what_does_not_fit_is_refused(job):
    running = start(job, """
def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
with muster.Strategy() as strategy:
    strategy.begin()
    flat = Array(numpy.zeros((4, 4)), strides=(8, 32))
    refused(BufferError, "contiguous in C order", lambda: strategy.all_reduce(flat))
    refused(ValueError, "1 of 2 tensors are in device memory", lambda: strategy.all_reduce_weighted([Array([1.0]), numpy.ones(1)], 1))
    refused(ValueError, "less than 2**64 bytes", lambda: strategy.all_reduce(Array([1.0], shape=(2**62, 2**2))))
    refused(ValueError, "less than 2**64 bytes", lambda: strategy.all_reduce(Array([1.0], shape=(2**61,))))
    strategy.all_reduce_weighted(Array(numpy.zeros((4, 1, 4)), strides=(32, 5, 8)), 1)
    refused(BufferError, "must not be read-only", lambda: strategy.all_reduce(Array([1.0], data=(64, True))))
    for kind, name in (("i2", None), ("u2", None), ("u1", "f8e4m3"), ("u2", "bf16")):
        strategy.broadcast(Array(numpy.zeros(2, kind)), 0, name)
    refused(TypeError, "got '<c16'", lambda: strategy.all_reduce(Array(numpy.zeros(2, complex))))
    refused(TypeError, "got '<f8' as bf16", lambda: strategy.all_reduce(Array([1.0]), dtype="bf16"))
    refused(TypeError, "got '>f8'", lambda: strategy.all_reduce(Array([1.0], typestr=">f8")))
    refused(BufferError, "must not have a mask", lambda: strategy.all_reduce(Array([1.0], mask=numpy.zeros(1, bool))))
    strategy.all_reduce(Array([1.0], mask=None, stream=None))
    strategy.all_reduce(Array([1.0], stream=1))    # the default one
    refused(ValueError, "stream must not be 0; give 1", lambda: strategy.all_reduce(Array([1.0], stream=0)))
    refused(TypeError, "", lambda: strategy.all_reduce(Array([1.0], stream="0")))
    refused(TypeError, "must have data", lambda: strategy.all_reduce(Array([1.0], data=None)))
    refused(TypeError, "must have a shape", lambda: strategy.all_reduce(Array([1.0], shape=None)))
    odd = Array([1.0])
    odd.__cuda_array_interface__ = 7
    refused(TypeError, "must be a dictionary", lambda: strategy.all_reduce(odd))
    strategy.commit()
say("done")
""", 1)
    running.end()
    assert [words for _, _, words in running.said()] == [["done"]]
    assert numpy.dtype(complex).str == "<c16"
