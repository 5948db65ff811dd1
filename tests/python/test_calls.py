"""Arguments and results of the calls of one strategy that is alone: no launcher, no other member."""
import gc
import re
import sys
import weakref

import muster
import numpy
import pytest

TYPES = ("float32", "float64", "float16", "int32", "int64", "uint8", "int8", "uint32", "uint64", "bool", "int16", "uint16")


@pytest.fixture
def strategy():
    with muster.Strategy() as each:
        each.begin()
        yield each
        each.commit()


@pytest.fixture
def unbegun():
    with muster.Strategy() as each:
        yield each


@pytest.mark.parametrize("dtype", TYPES)
def test_arrays_of_all_types_are_reduced(strategy, dtype):
    array = numpy.arange(6).astype(dtype).reshape(2, 3)
    before = array.copy()

    strategy.all_reduce(array, "max")

    assert (array == before).all()
    assert strategy.contributors == 1


def test_a_list_is_one_call(strategy):
    arrays = [numpy.full(3, i, "f4") for i in range(20)]

    strategy.all_reduce(arrays)
    strategy.all_reduce(tuple(arrays), op="mean", bytes_per_pack=64)

    assert [array[0] for array in arrays] == list(range(20))


def test_each_operation_has_its_result(strategy):
    gathered = numpy.zeros(3)
    array = numpy.arange(3.0)

    strategy.all_gather(array, gathered)
    assert (gathered == array).all()
    strategy.all_to_all(array, gathered)
    assert (gathered == array).all()
    strategy.broadcast(array, root=0)
    strategy.reduce(array, "sum", root=0)
    strategy.all_reduce_weighted(array, 4)
    assert strategy.total_weight == 4
    strategy.barrier()
    strategy.check_health(timeout=5)
    assert (array == numpy.arange(3)).all()


def test_operations_on_parts_have_their_results(strategy):
    array, out = numpy.arange(3.0), numpy.zeros(3)

    for call in (lambda: strategy.reduce_scatter(array, out, "mean"),
                 lambda: strategy.reduce_scatter(array, out, counts=[3]),
                 lambda: strategy.gather(array, out),
                 lambda: strategy.scatter(array, out, root=0),
                 lambda: strategy.all_gather_uneven(array, out, [3]),
                 lambda: strategy.all_to_all_uneven(array, out, (3,), [3])):
        out[:] = -1
        call()
        assert (out == array).all()
    strategy.exchange(None, None, None, None)


@pytest.mark.parametrize("call, error, text", [
    (lambda s, a: s.gather(a, None), muster.Mismatch, "gather of f64 x 3 into f64 x 0 on 1 members"),
    (lambda s, a: s.gather(a, a, root=1), muster.Mismatch, "there is no rank 1"),
    (lambda s, a: s.send(a, 0), muster.Mismatch, "rank 0 is this member itself"),
    (lambda s, a: s.receive(a, None), ValueError, "must be at most"),
    (lambda s, a: s.exchange(None, 0, None, None), TypeError, "NoneType"),
    (lambda s, a: s.reduce_scatter(a, a.copy(), counts=[2]), ValueError, "counts must add up"),
    (lambda s, a: s.all_gather_uneven(a, a.copy(), [2**62, 2**62, 2**62, 2**62, 3]), ValueError, "counts must add up"),
    (lambda s, a: s.all_gather_uneven(a, a.copy(), 3), TypeError, "counts must be a list"),
    (lambda s, a: s.all_to_all_uneven(a, a.copy(), [1, 2], [3]), muster.Mismatch, "a count for each of 1 members, got 2"),
    (lambda s, a: s.all_to_all_uneven(a, a.copy(), [-3], [3]), (OverflowError, ValueError), ""),
])
def test_parts_that_do_not_fit_are_refused(strategy, call, error, text):
    with pytest.raises(error, match=text):
        call(strategy, numpy.arange(3.0))


@pytest.mark.parametrize("call, error, text", [
    (lambda s, a: s.broadcast(a, root=-1), OverflowError, "a number must be a whole one from 0 to 2^64 - 1, got -1"),
    (lambda s, a: s.all_reduce_weighted(a, 2.5), TypeError, "a number must be a whole one from 0 to 2^64 - 1, got 2.5"),
    (lambda s, a: s.all_reduce_weighted(a, 2**64), OverflowError, f"a number must be a whole one from 0 to 2^64 - 1, got {2**64}"),
    (lambda s, a: s.zeros("three"), TypeError, "a number must be a whole one from 0 to 2^64 - 1, got 'three'"),
    (lambda s, a: s.zeros(3, numpy.float32), TypeError, "a name must be text (for a type, one such as 'f32'), got <class 'numpy.float32'>"),
])
def test_a_wrong_number_or_name_is_shown(strategy, call, error, text):
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        call(strategy, numpy.arange(3.0))


def test_a_number_that_raises_by_itself_does_so(strategy):
    class Broken:
        def __index__(self):
            raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        strategy.zeros(Broken())


def test_a_blob_has_any_size_and_counts_from_commit():
    with muster.Strategy() as strategy:
        strategy.register_blob("extra")
        strategy.register("array", numpy.zeros(1))
        assert strategy.blob("extra") == b""
        strategy.set_blob("extra", b"first")
        strategy.begin()
        assert strategy.blob("extra") == b"first"
        strategy.set_blob("extra", bytearray(100000))
        assert strategy.blob("extra") == b"first"
        strategy.commit()
        strategy.begin()
        assert strategy.blob("extra") == bytes(100000)
        strategy.set_blob("extra", numpy.arange(4, dtype="uint8"))
        strategy.begin()  # the step runs again
        assert strategy.blob("extra") == bytes(100000)
        strategy.set_blob("extra", b"")
        strategy.commit()
        assert strategy.blob("extra") == b""


def test_a_blob_that_is_not_there_is_named(strategy):
    with pytest.raises(muster.NotFound, match="no blob extra: register it before the first begin"):
        strategy.set_blob("extra", b"")
    with pytest.raises(muster.NotFound):
        strategy.blob("extra")
    with pytest.raises(TypeError):
        strategy.set_blob("extra", "text")
    with pytest.raises(TypeError):
        strategy.register_blob(None)
    with pytest.raises(muster.FailedPrecondition):
        strategy.register_blob("late")


def test_names_of_the_place(strategy):
    assert (strategy.rank, strategy.size, strategy.step, strategy.task, strategy.restored, strategy.joined) == (0, 1, 1, 0, False, 0)
    assert strategy.task_type == "worker" and strategy.view >= 1 and len(strategy.digest) == 16 and not strategy.closed


@pytest.mark.parametrize("array, error", [
    (numpy.zeros(3, "complex64"), TypeError),
    (numpy.zeros(3, "float128"), TypeError),
    (numpy.zeros(3, ">f4"), TypeError),
    (numpy.zeros((4, 4))[:, 1], ValueError),
    (numpy.zeros((4, 4)).T[1:], ValueError),
    (b"read only", BufferError),
    ([1.0, 2.0], TypeError),
    ([numpy.zeros(3), "text"], TypeError),
    (None, TypeError),
])
def test_what_is_no_array_is_refused(strategy, array, error):
    with pytest.raises((error, BufferError)):
        strategy.all_reduce(array)


@pytest.mark.parametrize("array, text", [
    ([1.0, 2.0], "an array must have the buffer protocol .*, got (list|float)"),  # a list is one of arrays
    (numpy.zeros((4, 4))[:, 1], "an array must be contiguous in C order; numpy.ascontiguousarray makes such a copy of it"),
    (b"read only", "not writable"),
])
def test_a_wrong_array_is_named_with_what_to_do(array, text):
    with muster.Strategy() as strategy:
        with pytest.raises((TypeError, BufferError), match=text):
            strategy.register("wrong", array)
        strategy.register("right", numpy.zeros(1))
        strategy.begin()
        with pytest.raises((TypeError, BufferError), match=text):
            strategy.all_reduce(array)
        strategy.commit()


@pytest.mark.parametrize("words, more, error", [
    ((), {}, TypeError),
    ((numpy.zeros(1),), {"opp": "sum"}, TypeError),
    ((numpy.zeros(1), "sum"), {"op": "sum"}, TypeError),
    ((numpy.zeros(1), "total"), {}, ValueError),
    ((numpy.zeros(1), 99), {}, ValueError),
    ((numpy.zeros(1), -1), {}, OverflowError),
    ((numpy.zeros(1), 1.5), {}, TypeError),
    ((numpy.zeros(1), "sum", "f32"), {}, TypeError),
    ((numpy.zeros(1), "sum", "f128"), {}, TypeError),
    ((numpy.zeros(1),), {"timeout": -1}, ValueError),
    ((numpy.zeros(1),), {"timeout": float("nan")}, ValueError),
    ((numpy.zeros(1), "sum", None, None, 0, 1), {}, TypeError),
])
def test_wrong_words_are_refused(strategy, words, more, error):
    with pytest.raises(error):
        strategy.all_reduce(*words, **more)


def test_types_that_numpy_lacks_are_named(strategy):
    strategy.all_reduce(numpy.zeros(4, "float16"), "sum", "bf16")
    strategy.broadcast(numpy.zeros(4, "uint8"), 0, "f8e4m3")
    with pytest.raises(TypeError, match="got 'B' of 1 bytes as bf16"):
        strategy.all_reduce(numpy.zeros(4, "uint8"), "sum", "bf16")


def test_floats_of_8_bits_are_moved_and_not_reduced(strategy):
    tensor = strategy.zeros(4, "f8e5m2")
    numpy.asarray(tensor)[:] = (1, 2, 250, 255)
    gathered = numpy.zeros(4, "uint8")

    strategy.all_gather(tensor, gathered, "f8e5m2")

    assert tensor.dtype == "f8e5m2" and gathered.tolist() == [1, 2, 250, 255]
    with pytest.raises(muster.Mismatch, match="sum of f8e5m2 has no meaning: 8-bit floats are only moved; convert them"):
        strategy.all_reduce(tensor)


def test_errors_have_a_class_for_each_code(strategy):
    with pytest.raises(muster.Mismatch) as caught:
        strategy.all_reduce(numpy.zeros(3), "and")  # a reduction that floats do not have

    assert isinstance(caught.value, (muster.Error, ValueError)) and caught.value.code == 3
    assert "f64" in str(caught.value)
    with pytest.raises(muster.FailedPrecondition, match="registered before the first begin"):
        strategy.register("late", numpy.zeros(1))
    assert muster.JobOver.code == 11 and issubclass(muster.DeadlineExceeded, TimeoutError)


def test_calls_out_of_order_are_refused(unbegun):
    with pytest.raises(muster.FailedPrecondition, match="begin first"):
        unbegun.barrier()
    with pytest.raises(muster.FailedPrecondition):
        unbegun.commit()
    unbegun.register("one", numpy.zeros(1))
    with pytest.raises(muster.AlreadyExists):
        unbegun.register("one", numpy.zeros(1))
    with pytest.raises(TypeError):
        unbegun.register(None, numpy.zeros(1))
    with pytest.raises(TypeError):
        unbegun.register("two", numpy.zeros(3, "complex64"))


def test_a_closed_strategy_refuses_calls():
    strategy = muster.Strategy()
    strategy.close()
    strategy.close()

    assert strategy.closed
    with pytest.raises(muster.FailedPrecondition, match="closed"):
        strategy.begin()
    with pytest.raises(muster.FailedPrecondition, match="closed"):
        _ = strategy.rank
    with pytest.raises(muster.FailedPrecondition, match="closed"):
        strategy.register("x", numpy.zeros(1))


def test_options_are_checked():
    with pytest.raises(TypeError):
        muster.Strategy("static:")
    with pytest.raises(TypeError):
        muster.Strategy(unknown=1)
    with pytest.raises(ValueError):
        muster.Strategy(op_timeout=-1)
    with pytest.raises(muster.Error, match="resolver|scheme"):
        muster.Strategy(resolver="nowhere:")


def test_nothing_is_counted_twice(strategy):
    array = numpy.zeros(3)
    before = sys.getrefcount(array), sys.getrefcount(muster.Mismatch), sys.getrefcount(None)

    for _ in range(1000):
        strategy.all_reduce(array)
        strategy.all_reduce([array] * 9)
        strategy.all_gather(array, array.copy())
        strategy.report("loss", 1.0)
        with pytest.raises(muster.Mismatch):
            strategy.all_reduce(array, "and")
        with pytest.raises(TypeError):
            strategy.all_reduce([array, array, 3])

    after = sys.getrefcount(array), sys.getrefcount(muster.Mismatch), sys.getrefcount(None)
    assert after[:2] == before[:2] and abs(after[2] - before[2]) < 200
    array.resize(5, refcheck=False)  # nobody holds its buffer


def test_a_registered_array_is_held_until_close():
    strategy = muster.Strategy()
    array = numpy.zeros(3)
    gone = weakref.ref(array)
    strategy.register("array", array)

    with pytest.raises((ValueError, BufferError)):
        array.resize(5)
    del array
    gc.collect()
    assert gone() is not None
    strategy.begin()
    strategy.commit()
    strategy.close()
    gc.collect()
    assert gone() is None


def test_an_open_strategy_is_held():
    strategy = muster.Strategy()
    gone = weakref.ref(strategy)

    del strategy
    gc.collect()
    assert gone() is not None
    gone().close()
    gc.collect()
    assert gone() is None


def test_mapped_memory_is_an_array(unbegun):
    tensor = unbegun.zeros(1000, "f64")
    array = numpy.asarray(tensor)
    unbegun.register("array", tensor)
    unbegun.begin()
    array += 3

    unbegun.all_reduce(array, "mean")
    unbegun.all_reduce(tensor, "mean")

    assert len(tensor) == 1000 and tensor.dtype == "f64" and array.dtype == numpy.float64 and (array == 3).all()
    unbegun.commit()


def test_mapped_memory_lives_as_long_as_its_last_user():
    strategy = muster.Strategy()
    arrays = [numpy.asarray(strategy.zeros(100000)) for _ in range(3)]
    for array in arrays:
        array += 7
    del arrays[0], array  # before close: its memory goes with the next call
    strategy.begin()
    strategy.all_reduce(arrays[0])
    strategy.commit()

    strategy.close()

    assert (arrays[0] == 7).all() and (arrays[1] == 7).all()
    arrays[0][:] = 8  # still writable
    view = arrays[0][5:10]
    del arrays, strategy
    gc.collect()
    assert (view == 8).all()


def test_bf16_of_mapped_memory_is_known(strategy):
    tensor = strategy.zeros(8, "bf16")

    strategy.all_reduce(tensor)

    assert memoryview(tensor).format == "H"
    with pytest.raises(ValueError):
        strategy.zeros(8, "f128")
    with pytest.raises((OverflowError, muster.Error)):
        strategy.zeros(-1)
    with pytest.raises(muster.Error):
        strategy.zeros(1 << 62)
    with pytest.raises(TypeError):
        muster.Tensor()


def test_the_stubs_name_all_that_there_is():
    import ast
    import pathlib

    tree = ast.parse((pathlib.Path(muster.__file__).parent / "_muster.pyi").read_text(encoding="utf-8"))
    nodes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    def names_of(node):
        own = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        return own.union(*(names_of(nodes[base.id]) for base in node.bases if base.id in nodes))
    classes = {name: names_of(node) for name, node in nodes.items() if not name.startswith("_")}

    assert classes.keys() == {name for name, each in vars(muster._muster).items() if isinstance(each, type)}
    for name in ("Strategy", "Split", "MicroBatches", "Dataset", "ParamsClient", "ParamsTable", "Publisher", "Reader", "Version"):
        each = getattr(muster._muster, name)
        there = {name for name in vars(each) if not name.startswith("_")}
        assert there == {name for name in classes[each.__name__] if not name.startswith("_")}
        assert all(vars(each)[name].__doc__ for name in there)
