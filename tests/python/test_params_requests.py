"""Pushes and pulls of muster.params that go on while the program computes, and clients under TLS."""
import gc
import os
import shutil
import signal
import sys
import time
import weakref

import conftest
import numpy
import pytest
from test_params import KEYS, Server, client, interrupt_when_it_waits, server  # noqa: F401 (fixtures)

import muster

sys.path.insert(0, str(conftest.SOURCE / "tests/lib"))
from tls_files import OPENSSL, TlsFiles


def ones(count):
    return numpy.ones(count, numpy.float32)


def test_each_kind_has_the_result_of_its_blocking_call(client):
    table, tensor = client.table("rows", 2), client.table("tensor", 1024, elements=3000)
    values, whole = numpy.arange(8, dtype=numpy.float32), numpy.zeros(3000, numpy.float32)

    push = table.start("push", KEYS, values)
    pull = table.start("pull", KEYS)
    both = table.start("push_pull", KEYS, ones(8))
    into = table.start("push_pull", keys=[0, 1], values=(given := ones(4)), answer=given)
    ranged = tensor.start("push_range", values=numpy.full(1024, 3, numpy.float32), offset=1024)
    back, some = tensor.start("pull_range"), tensor.start("pull_range", values=whole[1000:1030], offset=1000)

    assert [each.kind for each in (push, pull, both, ranged, back)] == ["push", "pull", "push_pull", "push_range", "pull_range"]
    assert into.wait() is given and (given.reshape(2, 2) == values.reshape(4, 2)[:2] + 2).all()
    assert push.wait() is None and push.wait() is None and ranged.wait() is None
    assert set((pull.wait().ravel() - values).tolist()) <= {0, 1, 2} and pull.wait().shape == (4, 2)    # perhaps with later pushes
    assert set((both.wait().ravel() - values).tolist()) <= {1, 2}
    assert (back.wait()[1024:2048] == 3).all() and back.wait().sum() == 3 * 1024
    some.wait()
    assert whole.sum() == 6 * 3 and all(each.done for each in (push, pull, both, into, ranged, back, some))


def test_they_go_on_without_the_program(client):
    table = client.table("rows", 1)
    requests = [table.start("push", [i], ones(1)) for i in range(100)]

    end = time.monotonic() + conftest.PATIENCE_S
    while not all(each.done for each in requests):    # no call of the library
        assert time.monotonic() < end
        time.sleep(0.001)

    assert (table.pull(numpy.arange(100)) == 1).all()


def test_a_request_holds_its_arrays_until_it_has_ended(server):
    with muster.params.Client(server.address, clock_sources=2) as client:
        table = client.table("rows", 1)
        class Array(numpy.ndarray):
            pass
        values, seen = numpy.zeros(4, numpy.float32).view(Array), []
        weakref.finalize(values, seen.append, "freed")
        request = table.start("pull", KEYS, values, min_clock=1)
        del values
        request.cancel()
        del request
        gc.collect()
        assert client.tick(1) is None
        table.pull([1])    # a call that lets go of what has ended
        gc.collect()
        assert seen == ["freed"]
        client.tick(muster.params.CLOCK_DONE)


def test_arrays_are_free_when_their_request_is_done(client):
    table = client.table("rows", 1)
    memory = bytearray(16)
    request = table.start("push", KEYS, numpy.frombuffer(memory, numpy.float32))

    end = time.monotonic() + conftest.PATIENCE_S
    while not request.done:    # no call of the library
        assert time.monotonic() < end
        time.sleep(0.001)

    memory.extend(b"more")    # a BufferError while somebody has its memory
    assert request.done and request.wait() is None and request.done


def test_a_request_is_cancelled(server):
    with muster.params.Client(server.address, clock_sources=2) as client:
        table = client.table("rows", 1)
        waiting = table.start("pull", [1], min_clock=1, timeout=conftest.PATIENCE_S)

        table.push([1], ones(1))    # others pass by
        assert not waiting.done
        waiting.cancel()

        for _ in range(2):
            with pytest.raises(muster.Cancelled):
                waiting.wait()
        waiting.cancel()
        assert waiting.done
        client.tick(muster.params.CLOCK_DONE)


def test_a_deadline_ends_it(server):
    with muster.params.Client(server.address, clock_sources=2) as client:
        late = client.table("rows", 1).start("pull", [1], min_clock=1, timeout=0.05)

        with pytest.raises(muster.DeadlineExceeded):
            late.wait()
        client.tick(muster.params.CLOCK_DONE)


def test_ctrl_c_ends_a_wait(server):
    with muster.params.Client(server.address, clock_sources=2) as client:
        table = client.table("rows", 1)
        waiting = table.start("pull", [1], min_clock=1, timeout=conftest.PATIENCE_S)
        thread = interrupt_when_it_waits()

        with pytest.raises(KeyboardInterrupt):
            waiting.wait()

        thread.join()
        with pytest.raises(muster.Cancelled):
            waiting.wait()
        assert table.push_pull([1], ones(1))[0, 0] == 1
        client.tick(muster.params.CLOCK_DONE)


def test_what_does_not_fit_into_the_queue_is_refused(server):
    with muster.params.Client(server.address, queue_max_bytes=100_000) as client:
        table = client.table("rows", 1000)
        os.kill(server.child.pid, signal.SIGSTOP)
        for pid in server.children():
            os.kill(int(pid), signal.SIGSTOP)
        try:
            started = []
            with pytest.raises(muster.ResourceExhausted):
                for i in range(100):
                    started.append(table.start("push", [i], ones(1000)))
            assert 10 < len(started) < 30
        finally:
            for pid in [*server.children(), server.child.pid]:
                os.kill(int(pid), signal.SIGCONT)

        for each in started:
            each.wait()
        assert table.pull(numpy.arange(100)).sum() == 1000 * len(started)


def test_kills_of_the_server_lose_and_double_nothing(server, client):
    table, started = client.table("rows", 1), []

    for _ in range(4):
        started += [table.start("push", [1, 2], ones(2)) for _ in range(50)]
        server.kill()

    for each in started:
        each.wait()
    assert (table.pull([1, 2]) == 200).all()


def test_wrong_arguments_are_refused_and_hold_nothing(client):
    table, tensor = client.table("rows", 2), client.table("tensor", 1024, elements=3000)

    for kind, text, call in (
            (ValueError, "kind must be push, pull", lambda: table.start("put", KEYS, ones(8))),
            (ValueError, "must have 8 elements", lambda: table.start("push", KEYS, ones(7))),
            (ValueError, "must have 8 elements", lambda: table.start("push_pull", KEYS, ones(8), ones(7))),
            (TypeError, "must be f32, got f64", lambda: table.start("push", KEYS, numpy.ones(8))),
            ((ValueError, BufferError), "", lambda: table.start("pull", KEYS, numpy.frombuffer(bytes(32), numpy.float32))),
            (muster.InvalidArgument, "", lambda: table.start("push_range", values=ones(8))),
            (muster.InvalidArgument, "", lambda: tensor.start("push_range", values=ones(8), offset=5)),
            (TypeError, "", lambda: table.start("push", None, ones(8))),
            (TypeError, "", lambda: table.start("push", KEYS))):
        with pytest.raises(kind, match=text):
            call()
    assert (table.pull(KEYS) == 0).all()


def test_close_ends_what_is_open(server):
    client = muster.params.Client(server.address, clock_sources=2)
    table = client.table("rows", 1)
    waiting, push = table.start("pull", [1], min_clock=1), table.start("push", [1], ones(1))

    client.tick(muster.params.CLOCK_DONE)
    waiting = table.start("pull", [1], min_clock=10**6) if waiting.done else waiting
    client.close()

    push.wait()
    assert waiting.done
    with pytest.raises(muster.FailedPrecondition, match="closed"):
        table.start("pull", [1])


def test_threads_start_and_wait_for_their_own(client):
    table = client.table("counters", 1)
    def work(_):
        for _ in range(20):
            for each in [table.start("push", [1], ones(1)) for _ in range(5)]:
                each.wait()

    conftest.side_by_side(work, range(3))

    assert table.pull([1])[0, 0] == 300


# --- Ticks and cuts ---

def test_ticks_go_on_without_the_program(server):
    with (muster.params.Client(server.address, clock_sources=2) as one, muster.params.Client(server.address, clock_sources=2) as other):
        table, theirs = one.table("rows", 1), other.table("rows", 1)
        pull = theirs.start("pull", [1], min_clock=1)
        push, tick = table.start("push", [1], ones(1)), one.start("tick", clock=1)
        other.tick(1)

        assert pull.wait()[0, 0] == 1 and tick.kind == "tick" and tick.wait() is None and tick.done
        push.wait()
        for words, error, text in (({"clock": 0}, muster.InvalidArgument, "clocks must rise"),
                                   ({"clock": 2, "weight": -1.0}, muster.InvalidArgument, "weight")):
            with pytest.raises(error, match=text):
                one.start("tick", **words)
        for each in [each.start("tick", clock=muster.params.CLOCK_DONE) for each in (one, other)]:
            each.wait()


def test_a_cut_goes_on_without_the_program_and_through_a_death(server, client, tmp_path):
    table = client.table("rows", 1)
    table.push(KEYS, ones(4))
    first = client.start("cut", folder=tmp_path).wait()
    assert first["rows"] == 4 and first["number"] > 0

    server.kill()
    table.start("push", [9], ones(1))
    cut = client.start("cut", folder=tmp_path)
    end = time.monotonic() + conftest.PATIENCE_S
    while not cut.done:    # no call of the library
        assert time.monotonic() < end
        time.sleep(0.001)

    assert cut.kind == "cut" and cut.wait()["number"] > first["number"] and cut.wait() == cut.wait()


@pytest.fixture
def lost(server, alone):
    """A source whose process has died: for some seconds the server makes no cut, until it comes back."""
    alone(f"client = muster.params.Client({server.address!r}, source='lost'); table = client.table('rows', 1)\n"
          "table.push([1], numpy.ones(1, numpy.float32)); os._exit(1)")
    return "lost"


def test_a_cut_is_made_again_until_it_can_be(server, client, lost, tmp_path):
    cut = client.start("cut", folder=tmp_path, timeout=conftest.PATIENCE_S)
    table = client.table("rows", 1)
    for _ in range(20):    # attempts go on meanwhile
        table.push(KEYS, ones(4))

    with muster.params.Client(server.address, source=lost):
        assert cut.wait()["rows"] == 4


def test_a_second_cut_does_not_end_the_first(server, client, lost, tmp_path):
    cut = client.start("cut", folder=tmp_path, timeout=conftest.PATIENCE_S)
    table = client.table("rows", 1)
    for _ in range(50):    # in attempts of the first one, and in its pauses
        table.push(KEYS, ones(4))
        with pytest.raises(muster.FailedPrecondition, match="another cut already"):
            client.cut(tmp_path)

    with muster.params.Client(server.address, source=lost):
        assert cut.wait()["rows"] == 4


@pytest.mark.parametrize("way", ["cancel", "close", "ctrl-c", "deadline"])
def test_a_cut_that_is_made_again_and_again_is_ended(client, lost, tmp_path, way):
    cut = client.start("cut", folder=tmp_path, timeout=0.2 if way == "deadline" else conftest.PATIENCE_S)
    client.table("rows", 1).push(KEYS, ones(4))

    if way == "cancel":
        cut.cancel()
    elif way == "close":
        client.close()
    elif way == "ctrl-c":
        thread = interrupt_when_it_waits()
        with pytest.raises(KeyboardInterrupt):
            cut.wait()
        thread.join()

    with pytest.raises(muster.DeadlineExceeded if way == "deadline" else muster.Cancelled):
        cut.wait()


def test_wrong_arguments_of_client_start_are_refused(client, tmp_path):
    for kind, text, words in ((ValueError, "kind must be tick or cut, got 'push'", {"kind": "push"}),
                              (TypeError, "a cut needs a folder", {"kind": "cut"}),
                              (muster.InvalidArgument, "clock_sources", {"kind": "tick", "clock": 1}),
                              (TypeError, "", {"kind": "tick", "clock": 1, "weight": "x"})):
        with pytest.raises(kind, match=text):
            client.start(**words)
    with pytest.raises(muster.Error, match="nowhere"):
        client.start("cut", folder=tmp_path / "nowhere", timeout=5).wait()


@pytest.mark.parametrize("way", ["pass", "os._exit(0)", "client.close()"])
def test_a_process_ends_clean_with_one_open(server, alone, way):
    done = alone(f"client = muster.params.Client({server.address!r}, clock_sources=2); table = client.table('rows', 1)\n"
                 f"open = table.start('pull', [1], min_clock=1)\n{way}")

    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


# --- TLS ---

@pytest.fixture
def files(request):
    if OPENSSL is None:
        pytest.skip("openssl is not installed (Debian: openssl)")
    return TlsFiles(lambda remove, folder: request.addfinalizer(lambda: remove(folder)))


@pytest.fixture
def secure(files, tmp_path):
    cert, key = files.issue("server", "DNS:localhost,IP:127.0.0.1")
    with open(tmp_path / "server.log", "w", encoding="utf-8") as log:
        one = Server(log, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", files.ca)
        yield one
        one.end()


def test_a_client_with_a_certificate_is_served_under_tls(secure, files):
    cert, key = files.issue("worker")
    with muster.params.Client(secure.address, tls_ca=files.ca, tls_cert=cert, tls_key=key) as client:
        table = client.table("rows", 2)
        table.push(KEYS, ones(8))

        assert (table.pull(KEYS) == 1).all() and not client.by_memory
        assert (table.start("push_pull", KEYS, ones(8)).wait() == 2).all()


def test_a_server_is_dialled_by_name(secure, files):
    cert, key = files.issue("worker")
    with muster.params.Client(secure.address.replace("127.0.0.1", "localhost"), tls_ca=files.ca, tls_cert=cert, tls_key=key) as client:
        table = client.table("named", 2)
        table.push(KEYS, ones(8))

        assert (table.pull(KEYS) == 1).all()


def test_what_does_not_prove_itself_is_refused(secure, server, files, tmp_path):
    stranger = TlsFiles(lambda remove, folder: None)
    cert, key = files.issue("worker")
    other_cert, other_key = stranger.issue("worker")
    try:
        for words in ({}, {"tls": True}, {"tls_ca": files.ca}, {"tls_ca": stranger.ca, "tls_cert": cert, "tls_key": key},
                      {"tls_ca": files.ca, "tls_cert": other_cert, "tls_key": other_key}):
            with pytest.raises(muster.Error) as refused:
                muster.params.Client(secure.address, timeout=5, **words)
            assert not isinstance(refused.value, muster.NotFound), refused.value
    finally:
        shutil.rmtree(stranger.folder)
    with pytest.raises(muster.Error):    # a server without TLS
        muster.params.Client(server.address, timeout=0.5, tls_ca=files.ca, tls_cert=cert, tls_key=key)
    with pytest.raises(muster.NotFound, match="nowhere.pem"):
        muster.params.Client(secure.address, tls_ca=str(tmp_path / "nowhere.pem"))
    with pytest.raises(ValueError, match="tls_cert and tls_key must both be given"):
        muster.params.Client(secure.address, tls_ca=files.ca, tls_cert=cert)
