"""Threads that share the objects of the package, all at once: test_threads.py runs this, with the GIL and without it.

usage: threads.py CASE [ADDRESS]. It prints whether the GIL was on behind the case, and ends with 0 if all results were right."""
import contextlib
import faulthandler
import os
import pathlib
import queue
import signal
import sys
import threading
import time

import numpy

import muster
from muster import _muster

THREADS, ROUNDS = 4, int(os.environ.get("THREADS_ROUNDS", "60"))
ELEMENTS = 1000


def together(*functions):
    """Runs them on a thread each, which start as one; the first exception comes out."""
    barrier, errors = threading.Barrier(len(functions)), []

    def work(function):
        barrier.wait()
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(each,), daemon=True) for each in functions]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for error in errors:
        raise error


def check(is_right, *words):
    if not is_right:
        raise AssertionError(*words)


# --- A strategy ---

def reduce_often(strategy):
    """Which member's call meets which of another one's does not matter: all are alike."""
    array = numpy.empty(ELEMENTS, numpy.float32)
    for _ in range(ROUNDS):
        array[:] = 1
        strategy.all_reduce(array)
        check((array == strategy.size).all(), array[:4])


def raise_often(strategy):
    calls = [(TypeError, lambda: strategy.all_reduce("text")), (ValueError, lambda: strategy.all_reduce(numpy.zeros(1), "maximum")),
             (TypeError, lambda: strategy.start("all_reduce", volume=11)), (muster.FailedPrecondition, lambda: strategy.register("late", numpy.zeros(1))),
             (ValueError, lambda: strategy.start("dance")), (BufferError, lambda: strategy.all_reduce(numpy.zeros((4, 4))[:, ::2]))]
    for i in range(ROUNDS * len(calls)):
        error, call = calls[i % len(calls)]
        try:
            call()
        except error:
            continue
        except (ValueError, BufferError):  # which of them depends on NumPy
            continue
        raise AssertionError(error)


def look_often(strategy):
    for _ in range(ROUNDS * 10):
        check(strategy.step in (1, 2) and not strategy.closed and not strategy.preempted and not strategy.restored, "attributes")
        check(strategy.size >= 1 and strategy.rank >= 0 and strategy.task_type == "worker", "place")
        check(strategy.blob("note") in (b"", b"a" * 100), "blob")


def make_tensors(strategy, made):
    """Each is dropped by whoever has it last: this thread, or one that takes it out of the queue."""
    for i in range(ROUNDS * 600):
        tensor = strategy.zeros(16)
        if i % 4 == 0:
            array = numpy.asarray(tensor)
            check((array == 0).all() and len(tensor) == 16, "a tensor")
            array[:] = i
            made.put((i, array if i % 8 else tensor))
            del array
        del tensor
    made.put(None)


def drop_tensors(made):
    while (each := made.get()) is not None:
        number, tensor = each
        check((numpy.asarray(tensor) == number).all(), "a tensor of another thread")
        del tensor, each


def wait_often(strategy):
    for _ in range(ROUNDS * 2):
        arrays = [numpy.ones(ELEMENTS, numpy.float32) for _ in range(3)]
        requests = [strategy.start("all_reduce", output=each) for each in arrays]
        strategy.poll()
        for request, array in zip(requests, arrays):
            request.wait()
            check(request.done and (array == strategy.size).all() and request.contributors == strategy.size, array[:4])


def share_requests(strategy):
    """Several threads wait for one request, poll, ask, and drop it."""
    for _ in range(ROUNDS):
        array = numpy.ones(ELEMENTS, numpy.float32)
        request = strategy.start("all_reduce", output=array)

        def wait(request=request, array=array):
            request.wait()
            check(request.done and (array == strategy.size).all(), array[:4])

        def ask(request=request):
            strategy.poll()
            check(request.done in (True, False) and request.kind == "all_reduce" and request.contributors in (0, strategy.size), request.kind)

        together(wait, wait, ask)


def run_steps(*functions):
    """Each of them in all steps, on a thread of its own."""
    with muster.Strategy() as strategy:
        strategy.register_blob("note")
        strategy.register("state", numpy.zeros(8))
        for _ in range(2):
            strategy.begin()
            strategy.set_blob("note", b"a" * 100)
            together(*(lambda each=each: each(strategy) for each in functions))
            strategy.commit()


def strategy_case():
    run_steps(*(reduce_often,) * THREADS, raise_often, look_often, wait_often)


def tensors_case():
    made = queue.SimpleQueue()
    run_steps(*(lambda strategy: make_tensors(strategy, made),) * THREADS, *(lambda _: drop_tensors(made),) * THREADS)


def requests_case():
    run_steps(*(wait_often,) * THREADS, share_requests, share_requests)


def cancel_case():
    """Alone: another member would end with Aborted."""
    with muster.Strategy() as strategy:
        strategy.begin()

        def cancel_often():
            for _ in range(ROUNDS):
                request = strategy.start("all_reduce", output=numpy.ones(ELEMENTS, numpy.float32))
                together(request.cancel, request.cancel, lambda: request.done)
                with contextlib.suppress(muster.Cancelled):
                    request.wait()
                request.cancel()

        together(*(cancel_often,) * THREADS, lambda: wait_often(strategy))
        strategy.commit()


def close_case():
    """A strategy is closed beside all the calls of other threads; its tensors stay."""
    for _ in range(max(ROUNDS // 10, 3)):
        strategy = muster.Strategy()
        strategy.begin()
        tensors = [numpy.asarray(strategy.zeros(ELEMENTS)) for _ in range(8)]
        half_way = threading.Barrier(THREADS + 3)

        def call_until_closed(strategy=strategy, tensors=tensors, half_way=half_way):
            with contextlib.suppress(muster.FailedPrecondition):
                for i in range(1000000):
                    strategy.all_reduce(numpy.ones(4))
                    request = strategy.start("all_reduce", output=numpy.ones(4))
                    mine = strategy.zeros(10)
                    if i == 3:
                        half_way.wait()
                    request.wait()
                    del mine, request

        def look_until_closed(strategy=strategy, tensors=tensors, half_way=half_way):
            half_way.wait()
            with contextlib.suppress(muster.FailedPrecondition):
                while not strategy.closed:
                    check(strategy.preempted is False, "preempted")
            for _ in range(4):
                tensor = tensors.pop()
                tensor[:] = 5
                check((tensor == 5).all(), tensor[:4])

        def close(strategy=strategy, half_way=half_way):
            half_way.wait()
            strategy.close()

        together(*(call_until_closed,) * THREADS, look_until_closed, look_until_closed, close)
        check(strategy.closed and not tensors, "it is closed")


def replicas_case():
    with muster.Strategy(replicas=THREADS) as strategy:
        strategy.begin()
        replicas = strategy.replicas

        def compute(replica, value):
            for _ in range(ROUNDS):
                gradient = numpy.full(ELEMENTS, float(value))
                replica.all_reduce(gradient, "sum")
                check((gradient == sum(range(replica.size))).all(), gradient[:4])
                check(replica.reduce(1.0) == replica.size and len(replica.gather(numpy.ones(2))) == 2 * replica.size, "replicas")
            return value

        values = [replicas.first + i for i in range(THREADS)]
        check(replicas.run(compute, values) == values, "results")
        strategy.commit()


def numbers_case():
    """What programs of XLA know strategies by, and arrays whose description other threads change."""
    strategies = [muster.Strategy() for _ in range(4)]
    numbers = [[] for _ in range(THREADS)]

    class Array:
        __cuda_array_interface__ = {"typestr": "<f4", "shape": (4,), "data": (4096, False), "version": 3, "strides": None}

    def count(mine):
        for _ in range(ROUNDS):
            mine.append([_muster.xla_number(each) for each in strategies])
            _muster.xla_take_error()

    def reduce():
        for _ in range(ROUNDS * 10):
            with contextlib.suppress(muster.Error, TypeError, BufferError):  # there is no device
                strategies[0].all_reduce(Array())

    def change():
        for i in range(ROUNDS * 40):
            Array.__cuda_array_interface__["shape"] = (i + 1, 2)
            Array.__cuda_array_interface__["typestr"] = "<" + "fi"[i % 2] + str(4)
            Array.__cuda_array_interface__["data"] = (4096 * (i + 1), False)

    together(*(lambda mine=mine: count(mine) for mine in numbers), reduce, change)
    check(all(each == numbers[0][0] for mine in numbers for each in mine) and len(set(numbers[0][0])) == 4, numbers[0][0])
    for each in strategies:
        each.close()


# --- Datasets ---

def dataset_case():
    count = 200 * THREADS
    data = muster.data.numbers(count, batch=2, epochs=2, seed=7)
    taken = [[] for _ in range(THREADS)]

    def take(mine):
        for _, numbers, epoch in data:
            mine.extend(numbers)
            check(epoch in (0, 1) and data.epoch in (0, 1) and len(data) == count and len(memoryview(data.position)) > 8, "a batch")

    together(*(lambda mine=mine: take(mine) for mine in taken))
    check(sorted(sum(taken, [])) == sorted(2 * list(range(count))), "each record is used once in an epoch")


# --- Parameter exchange ---

def params_case(address):
    keys = numpy.arange(8, dtype=numpy.uint64)
    ones = numpy.ones(8, numpy.float32)
    client = muster.params.Client(address)
    tables = [None] * THREADS
    pushes = numpy.zeros(3 * THREADS + 1, int)

    def push(i):
        table = tables[i % THREADS]
        for _ in range(ROUNDS):
            table.push(keys, ones)
            pushes[i] += 1
            with contextlib.suppress(TypeError):
                table.push(keys, "text")

    def start(i):
        table = tables[i % THREADS]
        for _ in range(ROUNDS):
            requests = [table.start("push", keys, ones), table.start("pull", keys), table.start("push_pull", keys, ones)]
            pushes[i] += 2
            together(requests[0].wait, lambda requests=requests: requests[0].done, requests[1].wait)
            check((requests[2].wait() >= 1).all() and all(each.done for each in requests), "requests")

    def cancel(i):
        for _ in range(ROUNDS):
            request = tables[i % THREADS].start("pull", keys)
            together(request.cancel, lambda request=request: request.done)
            with contextlib.suppress(muster.Cancelled):
                request.wait()

    def open_table(i):
        tables[i] = client.table("counters", 1, optimizer="add")
        check(tables[i].round == 0 and not client.closed and client.short_shards >= 0, "attributes")

    together(*(lambda i=i: open_table(i) for i in range(THREADS)))
    together(*(lambda i=i: push(i) for i in range(THREADS)), *(lambda i=i: start(i) for i in range(THREADS, 2 * THREADS)),
             lambda: cancel(2 * THREADS))
    values = tables[0].pull(keys)
    check((values == pushes.sum()).all(), values, pushes)
    together(*(lambda i=i: pull_until_closed(client, tables[i], keys) for i in range(THREADS)), client.close, client.close)
    check(client.closed, "it is closed")


def pull_until_closed(client, table, keys):
    """One that has been started ends as the client's close says, whoever has the lock first."""
    with contextlib.suppress(muster.FailedPrecondition):
        while not client.closed:
            request = table.start("pull", keys)
            try:
                request.wait()
            except muster.Cancelled:
                check(client.closed, "it was the close")
            table.pull(keys)


# --- Publications ---

def publication_case(address):
    publisher = muster.publication.Publisher("weights", address)
    reader = muster.publication.Reader("weights", address)
    taken = queue.SimpleQueue()
    names = [f"layer{i}" for i in range(8)]
    items = [(name, numpy.zeros(ELEMENTS, numpy.float32), None) for name in names]
    is_over = threading.Event()

    def put():
        for i in range(ROUNDS):
            publisher.put({name: numpy.full(ELEMENTS, float(i), numpy.float32) for name in names})
            with contextlib.suppress(TypeError, ValueError):
                publisher.put({"text": "text"})
        is_over.set()

    def take():
        while not is_over.is_set():
            with contextlib.suppress(muster.DeadlineExceeded):
                version = reader.take(0, timeout=0.05)
                check(version.number <= reader.newest and reader.stats()["versions"] >= 1, "numbers")
                first = version["layer0"][0]
                for name in names:
                    array = version[name]
                    check((array == first).all(), name, array[:4], first)
                    taken.put((first, array))

    def drop():
        while not is_over.is_set():
            with contextlib.suppress(queue.Empty):
                first, array = taken.get(timeout=0.01)
                check((array == first).all(), array[:4], first)
                del array

    def change():
        """The list of a put that goes on."""
        while not is_over.is_set():
            items[:] = [(name, numpy.zeros(ELEMENTS, numpy.float32), None) for name in names]
            items.pop()

    def put_items():
        while not is_over.is_set():
            _muster.Publisher.put(publisher, items)
            check(publisher.version >= 1 and not publisher.closed, "a version")

    together(put, *(take,) * THREADS, drop, drop)
    is_over.clear()
    together(change, put_items, lambda: (take_some(reader), is_over.set()))
    kept = [reader.take()["layer0"] for _ in range(THREADS)]
    together(*(reader.close,) * 2, *(lambda: drop_one(kept),) * THREADS, publisher.close, publisher.close)
    check(reader.closed and publisher.closed and not kept, "both are closed")


def handover_case(address):
    """A version that another thread drops makes room, while the one that has taken it waits for the next: in a call, or
    for a call of a third one."""
    publisher = muster.publication.Publisher("weights", address)
    for take_next in (take_here, take_on_a_thread):
        with muster.publication.Reader("weights", address) as reader:
            used = queue.SimpleQueue()
            before = publisher.version
            for i in range(1, 3):
                publisher.put({"w": numpy.full(9, float(i))}, wait_readers=1)
                used.put(reader.take(before + i)["w"])
            publisher.put({"w": numpy.full(9, 3.0)})
            check((take_next(reader, before + 3, used.get)["w"] == 3).all(), "the third version")
            check((used.get() == 2).all(), "the second version")
    publisher.close()


def take_here(reader, number, drop):
    me = threading.get_native_id()
    thread = threading.Thread(target=lambda: (wait_for_poll(me), drop()), daemon=True)
    thread.start()
    version = reader.take(number)
    thread.join()
    return version


def take_on_a_thread(reader, number, drop):
    taken = []
    taker = threading.Thread(target=lambda: taken.append(reader.take(number)), daemon=True)
    taker.start()
    thread = threading.Thread(target=lambda: (wait_for_poll(taker.native_id), drop()), daemon=True)
    thread.start()
    while taker.is_alive():
        check(reader.newest >= number - 1, "it waits for the other's call")
    thread.join()
    return taken[0]


def wait_for_poll(thread):
    """Until it sleeps in the kernel, in the loop of the call."""
    path = f"/proc/self/task/{thread}/wchan"
    while "poll" not in pathlib.Path(path).read_text(encoding="ascii"):
        time.sleep(0.002)


def take_some(reader):
    for _ in range(ROUNDS):
        with contextlib.suppress(muster.DeadlineExceeded):
            reader.take(timeout=0)


def drop_one(kept):
    array = kept.pop()
    check((array == array[0]).all(), array[:4])


def main():
    faulthandler.enable()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    globals()[sys.argv[1] + "_case"](*sys.argv[2:])
    print("gil", getattr(sys, "_is_gil_enabled", lambda: True)())


if __name__ == "__main__":
    main()
