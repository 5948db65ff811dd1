"""Requests: operations that go on while the program computes, in one member alone and among several."""
import gc
import weakref

import muster
import numpy
import pytest


@pytest.fixture
def strategy():
    with muster.Strategy() as each:
        each.begin()
        yield each
        each.commit()


def test_each_kind_has_its_result(strategy):
    array, out = numpy.arange(3.0), numpy.zeros(3)

    for kind, more in (("reduce_scatter", {"op": "mean"}), ("gather", {}), ("scatter", {"rank": 0}), ("all_gather", {}), ("all_to_all", {}),
                       ("reduce_scatter_uneven", {"input_counts": [3]}), ("all_gather_uneven", {"output_counts": [3]}),
                       ("all_to_all_uneven", {"input_counts": (3,), "output_counts": [3]})):
        out[:] = -1
        request = strategy.start(kind, array, out, **more)
        assert request.kind == kind
        request.wait()
        assert (out == array).all() and request.contributors == 1 and request.done
    for kind, more in (("all_reduce", {"op": "max"}), ("all_reduce_weighted", {"weight": 5}), ("broadcast", {}), ("reduce", {})):
        strategy.start(kind, output=array, timeout=30, **more).wait()
        assert (array == numpy.arange(3)).all()
    strategy.start("barrier").wait()


def test_poll_completes_what_is_done_and_nothing_twice(strategy):
    requests = [strategy.start("all_reduce", output=numpy.ones(1000)) for _ in range(3)]

    while strategy.poll() > 0:
        pass
    assert [request.done for request in requests] == [True] * 3
    for request in requests:
        request.wait()
        request.wait()
        request.cancel()


def test_commit_is_refused_until_it_has_been_waited_for(strategy):
    request = strategy.start("barrier")

    with pytest.raises(muster.FailedPrecondition, match="1 requests have not been completed"):
        strategy.commit()
    request.wait()


def test_the_arrays_are_held_until_it_is_completed(strategy):
    array = numpy.zeros(1000)
    gone = weakref.ref(array)

    request = strategy.start("all_reduce", output=array)
    del array
    gc.collect()
    assert gone() is not None
    request.wait()
    assert gone() is None


def test_a_request_that_nobody_has_is_completed(strategy):
    array = numpy.zeros(1000)
    gone = weakref.ref(array)

    strategy.start("all_reduce", output=array)
    del array
    while strategy.poll() > 0:
        pass
    assert gone() is None


def test_close_lets_go_of_what_is_open():
    strategy = muster.Strategy()
    strategy.begin()
    array = numpy.zeros(1000)
    gone = weakref.ref(array)

    request = strategy.start("all_reduce", output=array)
    del array
    strategy.close()

    assert gone() is None and request.done


@pytest.mark.parametrize("words, more, error, text", [
    (("sort",), {}, ValueError, "kind must be the name of an operation, got 'sort'"),
    ((3,), {}, TypeError, ""),
    (("all_reduce",), {}, muster.Mismatch, "output must be a tensor"),
    (("all_reduce",), {"output": numpy.zeros(2), "op": "xor"}, muster.Mismatch, "xor of f64 has no meaning"),
    (("send", numpy.zeros(2)), {"rank": 0}, muster.Mismatch, "rank 0 is this member itself"),
    (("all_gather", numpy.zeros(2)), {}, muster.Mismatch, "all_gather of f64 x 2 into"),
    (("all_gather_uneven", numpy.zeros(2), numpy.zeros(2)), {}, muster.Mismatch, "a count for each of 1 members, got 0"),
    (("all_gather_uneven", numpy.zeros(2), numpy.zeros(2)), {"output_counts": [3]}, ValueError, "counts must add up"),
    (("reduce_scatter_uneven", None, numpy.zeros(2)), {"input_counts": [2]}, ValueError, "counts must be those of an array"),
    (("all_reduce",), {"output": [1.0]}, TypeError, ""),
    (("all_reduce",), {"output": b"read only"}, BufferError, ""),
])
def test_what_cannot_be_is_refused(strategy, words, more, error, text):
    with pytest.raises(error, match=text):
        strategy.start(*words, **more)


def test_messages_that_both_send_first_and_a_cancel(job):
    run = job("""
with muster.Strategy() as strategy:
    strategy.begin()
    rank, other = strategy.rank, 1 - strategy.rank
    mine, theirs = numpy.full(100000, rank), numpy.zeros(100000, int)
    requests = [strategy.start("send", mine, rank=other), strategy.start("receive", output=theirs, rank=other)]
    strategy.barrier()
    for request in requests:
        request.wait()
    assert (theirs == other).all()
    if rank == 0:
        request = strategy.start("all_reduce", output=numpy.zeros(1))
        request.cancel()
        try:
            request.wait()
        except muster.Cancelled as error:
            say("cancelled", error)
        strategy.start("send", mine, rank=1).wait()
    else:
        strategy.receive(theirs, 0)
        try:
            strategy.start("all_reduce", output=numpy.zeros(1)).wait()
        except muster.Aborted as error:
            say("aborted", error)
    strategy.begin()
    strategy.commit()
""", 2)

    run.end()
    assert sorted(words[0] for _, _, words in run.said()) == ["aborted", "cancelled"]
