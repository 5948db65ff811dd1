"""muster.params: arrays to and from the rows of `muster params serve`, whose server dies by kill -9."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import conftest
import numpy
import pytest

import muster

KEYS = numpy.arange(4, dtype=numpy.uint64)
WORKER = """
import os, sys, numpy, muster
with muster.params.Client(sys.argv[1]) as client:
    table = client.table("counters", 1)
    while not os.path.exists(sys.argv[2]):
        table.push([1, 2, 3], numpy.ones(3, numpy.float32))
        print("pushed", flush=True)
"""


class Server:
    """`muster params serve`: a keeper, the process that serves, and its spare."""

    def __init__(self, log, *words):
        self.child = subprocess.Popen([conftest.MUSTER, "params", "serve", "--listen", "127.0.0.1:0", "--memory-max", "64M", *words],
                                      stdout=subprocess.PIPE, stderr=log, text=True)
        self.address = self.child.stdout.readline().split()[1]

    def children(self):
        return pathlib.Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text(encoding="ascii").split()

    def kill(self):
        """The process that serves, and its spare: which is which is not known."""
        pids = self.children()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        while set(pids) & set(self.children()):
            time.sleep(0.002)

    def end(self):
        self.child.terminate()
        assert self.child.wait(conftest.PATIENCE_S) == 0
        self.child.stdout.close()


@pytest.fixture
def server(tmp_path):
    with open(tmp_path / "server.log", "w", encoding="utf-8") as log:
        one = Server(log)
        yield one
        one.end()


@pytest.fixture
def client(server):
    with muster.params.Client(server.address) as one:
        yield one


@pytest.mark.parametrize("dtype, array", [("f32", numpy.float32), ("f16", numpy.float16), ("bf16", numpy.uint16)])
def test_rows_are_pushed_and_pulled_in_each_type(client, dtype, array):
    table = client.table("rows", 3, dtype=dtype, optimizer="assign")
    one = 0x3f80 if dtype == "bf16" else 1  # the bits of 1.0
    given = numpy.full((4, 3), one, array)

    table.push(KEYS, given)

    assert (table.pull(KEYS) == given).all() and table.pull(KEYS).dtype == array
    assert (table.pull([9]) == 0).all()
    assert (table.name, table.dtype, table.row_elements, table.elements, table.round) == ("rows", dtype, 3, 0, 0)


def test_values_go_into_the_memory_of_the_program(client):
    table = client.table("rows", 2, init="constant", init_scale=3)
    values = numpy.zeros((4, 2), numpy.float32)

    assert table.pull(KEYS, values) is values and (values == 3).all()
    assert table.push_pull(KEYS, values, values) is values and (values == 6).all()
    assert (table.push_pull(KEYS.astype(numpy.int64), numpy.ones(8, numpy.float32)) == 7).all()


def test_an_optimizer_has_its_numbers(client):
    table = client.table("weights", 1, optimizer="sgd", learning_rate=0.5)

    assert (table.push_pull(KEYS, numpy.ones(4, numpy.float32)) == -0.5).all()


def test_a_tensor_is_pushed_and_pulled_by_ranges(client):
    tensor = client.table("tensor", 1024, elements=100000, optimizer="assign")
    given = numpy.arange(100000, dtype=numpy.float32)

    tensor.push_range(given)
    tensor.push_range(numpy.zeros(1024, numpy.float32), offset=2048)

    given[2048:3072] = 0
    assert (tensor.pull_range() == given).all()
    some = numpy.zeros(10, numpy.float32)
    assert tensor.pull_range(some, offset=3070) is some and (some == given[3070:3080]).all()


def test_rows_are_read_from_the_memory_of_the_server(client):
    table = client.table("rows", 2)
    table.push(KEYS, numpy.arange(8, dtype=numpy.float32))

    assert table.peek(KEYS) is None  # this asks for the memory
    deadline = time.monotonic() + conftest.PATIENCE_S
    while table.peek([0]) is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)

    assert table.peek(KEYS).ravel().tolist() == list(range(8))
    table.push(KEYS, numpy.ones(8, numpy.float32))
    values = numpy.empty((5, 2), numpy.float32)
    assert table.peek([3, 2, 1, 0, 9], values) is values
    assert values.ravel().tolist() == [7, 8, 5, 6, 3, 4, 1, 2, 0, 0]
    assert client.table("halves", 2, dtype="f16").peek(KEYS) is None  # only f32 is there as it is


WRONG = {
    "values of another type": (TypeError, "must be f32, got f64", lambda table: table.push(KEYS, numpy.ones(4))),
    "too few values": (ValueError, r"must have 8 elements \(2 for each key\), got 7", lambda table: table.push(KEYS, numpy.ones(7, numpy.float32))),
    "too many values": (ValueError, r"must have 8 elements \(2 for each key\), got 9", lambda table: table.pull(KEYS, numpy.ones(9, numpy.float32))),
    "a short answer": (ValueError, r"must have 8 elements \(2 for each key\), got 7", lambda table: table.push_pull(KEYS, numpy.ones(8, numpy.float32), numpy.ones(7, numpy.float32))),
    "keys of another type": (TypeError, "keys must be u64", lambda table: table.pull(numpy.ones(4))),
    "keys that are not whole": (TypeError, "cannot be interpreted as an integer", lambda table: table.push([1.5, 2], numpy.ones(4, numpy.float32))),
    "keys below 0": (OverflowError, "a key must be a number from 0 to 2.64 - 1, got -1", lambda table: table.push([-1, 2], numpy.ones(4, numpy.float32))),
    "without keys": (ValueError, "keys must have at least one element, got none", lambda table: table.pull([])),
    "without elements": (ValueError, "values must have at least one element, got none", lambda table: table.push_range(numpy.ones(0, numpy.float32))),
    "a range of rows": (muster.InvalidArgument, "", lambda table: table.push_range(numpy.ones(8, numpy.float32))),
    "memory that is not contiguous": ((ValueError, BufferError), "", lambda table: table.pull(KEYS, numpy.ones((4, 4), numpy.float32)[:, ::2])),
    "memory that is read only": ((ValueError, BufferError), "", lambda table: table.pull(KEYS, numpy.frombuffer(bytes(32), numpy.float32))),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arrays_are_refused_and_change_nothing(client, what):
    error, text, call = WRONG[what]
    table = client.table("rows", 2)

    with pytest.raises(error, match=text):
        call(table)

    assert (table.pull(KEYS) == 0).all()


def test_wrong_words_are_refused(client):
    client.table("rows", 2)
    with pytest.raises(ValueError, match="optimizer 'best' is not known: must be one of add, assign, max, sgd, .*, clock_sum$"):
        client.table("others", 2, optimizer="best")
    with pytest.raises(ValueError, match="init 'one' is not known"):
        client.table("others", 2, init="one")
    with pytest.raises(ValueError, match="evict 'all' is not known: must be one of lru, lfu$"):
        client.table("others", 2, evict="all")
    with pytest.raises(ValueError, match="dtype must be"):
        client.table("others", 2, dtype="f8")
    with pytest.raises(muster.InvalidArgument, match="rows of 2 elements"):
        client.table("rows", 3)
    with pytest.raises(muster.InvalidArgument, match="a client that ticks must be opened with clock_sources, got 0"):
        client.tick(1)
    with pytest.raises(muster.InvalidArgument, match="nonsense"):
        muster.params.Client("nonsense")


def test_kills_of_the_server_lose_and_double_nothing(server, client, tmp_path):
    """Three processes push to the same rows while the process that serves is killed six times."""
    logs = [open(tmp_path / f"log.{i}", "w+", encoding="ascii") for i in range(3)]
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, server.address, tmp_path / "stop"], stdout=log) for log in logs]
    def pushed():
        return sum((tmp_path / f"log.{i}").read_text(encoding="ascii").count("\n") for i in range(3))
    def wait_for_more():
        count = pushed() + 60
        while pushed() < count:
            assert all(worker.poll() is None for worker in workers)
            time.sleep(0.002)

    for _ in range(6):
        wait_for_more()
        server.kill()
    wait_for_more()
    (tmp_path / "stop").touch()
    assert [worker.wait(conftest.PATIENCE_S) for worker in workers] == [0, 0, 0]

    assert (client.table("counters", 1).pull([1, 2, 3]) == pushed()).all()
    text = (tmp_path / "server.log").read_text(encoding="utf-8")
    assert int(re.findall(r"takes=(\d+)", text)[-1]) >= 7, text
    for log in logs:
        log.close()


def test_sources_go_in_step(server):
    def learn(name):
        with muster.params.Client(server.address, source=name, clock_sources=2) as client:
            table = client.table("weights", 1)
            for clock in range(20):
                seen[name].append(table.pull([1], min_clock=clock)[0, 0])
                table.push([1], numpy.ones(1, numpy.float32))
                client.tick(clock + 1)
            client.tick(muster.params.CLOCK_DONE)
    seen = {"a": [], "b": []}

    conftest.side_by_side(learn, seen)

    # Behind c steps of both there are 2 c pushes, and perhaps one of the step that is under way.
    assert all(2 * clock <= value <= 2 * clock + 1 for values in seen.values() for clock, value in enumerate(values)), seen


def test_a_push_to_a_closed_round_says_so(server):
    words = {"by_round": True, "round_quorum": 1}
    with muster.params.Client(server.address, source="fast", clock_sources=2) as fast, \
            muster.params.Client(server.address, source="slow", clock_sources=2) as slow:
        table, late = fast.table("weights", 1, **words), slow.table("weights", 1, **words)
        table.push([1], numpy.ones(1, numpy.float32))
        fast.tick(1)
        with pytest.raises(muster.InvalidArgument, match="clocks must rise: this source has ticked 1, got 0"):
            fast.tick(0)
        table.pull([1], min_clock=1)

        with pytest.raises(muster.params.RoundOver):
            late.push([1], numpy.ones(1, numpy.float32))

        assert late.round == 1 and not issubclass(muster.params.RoundOver, muster.JobOver)
        slow.tick(late.round)
        late.push([1], numpy.full(1, 5, numpy.float32))
        slow.tick(2)
        assert late.pull([1], min_clock=2)[0, 0] == 6
        fast.tick(muster.params.CLOCK_DONE)
        slow.tick(muster.params.CLOCK_DONE)


def test_a_cut_is_restored(client, tmp_path):
    table = client.table("rows", 2)
    table.push(KEYS, numpy.arange(8, dtype=numpy.float32))
    (tmp_path / "cut").mkdir()

    cut = client.cut(tmp_path / "cut")

    table.push(KEYS, numpy.ones(8, numpy.float32))  # behind it
    assert cut["rows"] == 4 and cut["tables"] == 1 and cut["servers"] == 1 and cut["number"] > 0, cut
    with open(tmp_path / "restored.log", "w", encoding="utf-8") as log:
        other = Server(log, "--restore", tmp_path / "cut")
        with muster.params.Client(other.address) as restored:
            assert restored.table("rows", 2).pull(KEYS).ravel().tolist() == list(range(8))
        other.end()


def test_a_folder_is_one_of_the_program(client, tmp_path, monkeypatch):
    client.table("rows", 2).push(KEYS, numpy.ones(8, numpy.float32))
    (tmp_path / "begun").mkdir()
    monkeypatch.chdir(tmp_path)

    assert client.cut(".")["rows"] == 4 and (tmp_path / "manifest").exists()
    client.start("cut", folder="begun").wait()
    assert (tmp_path / "begun" / "manifest").exists()
    with pytest.raises(ValueError, match="the folder of a cut must have 1 to"):
        client.cut("")


def test_a_timeout_of_0_is_refused_where_there_is_an_answer(client, tmp_path):
    table = client.table("rows", 1)
    for call in (lambda: client.table("other", 1, timeout=0), lambda: table.push([1], numpy.ones(1, numpy.float32), timeout=0), lambda: table.pull([1], timeout=0),
                 lambda: client.cut(tmp_path, timeout=0), lambda: client.start("cut", folder=tmp_path, timeout=0)):
        with pytest.raises(ValueError, match="timeout must be more than 0 s, got 0"):
            call()


def test_a_cut_to_a_folder_that_is_not_there_is_refused(client, tmp_path):
    client.table("rows", 2).push(KEYS, numpy.ones(8, numpy.float32))

    with pytest.raises(muster.Error) as refused:
        client.cut(tmp_path / "nowhere", timeout=5)

    assert not isinstance(refused.value, muster.DeadlineExceeded) and "nowhere" in str(refused.value)
    assert client.cut(tmp_path)["rows"] == 4


def interrupt_when_it_waits():
    """By a thread, when the main one sleeps in the kernel with the call that is to be interrupted."""
    end = time.monotonic() + conftest.PATIENCE_S / 2

    def look():
        path = pathlib.Path(f"/proc/{os.getpid()}/task/{os.getpid()}/wchan")
        while "poll" not in path.read_text(encoding="ascii") and time.monotonic() < end:
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    return thread


def test_ctrl_c_ends_a_pull_that_waits(server):
    with muster.params.Client(server.address, clock_sources=2) as client:
        table = client.table("rows", 1)
        thread = interrupt_when_it_waits()

        with pytest.raises(KeyboardInterrupt):
            table.pull([1], min_clock=1, timeout=conftest.PATIENCE_S)

        thread.join()
        table.push([1], numpy.ones(1, numpy.float32))  # the client goes on
        assert table.pull([1])[0, 0] == 1
        client.tick(muster.params.CLOCK_DONE)


def test_ctrl_c_ends_the_search_for_a_server(server):
    address = server.address.rsplit(":", 1)[0] + ":1"
    thread = interrupt_when_it_waits()

    with pytest.raises(KeyboardInterrupt):
        muster.params.Client(address, timeout=conftest.PATIENCE_S)

    thread.join()


def test_a_server_that_is_not_there_is_told():
    with pytest.raises((muster.Unavailable, muster.DeadlineExceeded), match="127.0.0.1:1"):
        muster.params.Client("127.0.0.1:1", timeout=0.2)


def test_a_server_that_is_waited_for_is_told():
    waiting = subprocess.Popen([sys.executable, "-c", "import muster; muster.params.Client('127.0.0.1:1')"], stderr=subprocess.PIPE, text=True)
    with waiting:
        assert "waits_for_params_server server=127.0.0.1:1" in waiting.stderr.readline()
        waiting.kill()


def test_threads_share_a_client(client):
    table = client.table("counters", 1)
    def work(_):
        for _ in range(100):
            table.push([1], numpy.ones(1, numpy.float32))

    conftest.side_by_side(work, range(3))

    assert table.pull([1])[0, 0] == 300


def test_a_fork_is_refused(client):
    table = client.table("counters", 1)
    pid = os.fork()
    if pid == 0:
        try:
            table.push([1], numpy.ones(1, numpy.float32))
        except RuntimeError as error:
            client.close()
            os._exit("forked" in str(error))
        os._exit(2)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert (table.push_pull([1], numpy.ones(1, numpy.float32)) == 1).all()


def test_a_closed_client_says_so(client):
    table = client.table("counters", 1)

    client.close()
    client.close()

    assert client.closed
    for call in (lambda: table.pull([1]), lambda: client.table("x", 1), lambda: client.short_shards, lambda: table.round):
        with pytest.raises(muster.FailedPrecondition, match="closed"):
            call()


ENDS = {
    "without close": "table.push([1], numpy.ones(1, numpy.float32))",
    "a client that is deleted": "del client, table",
    "a client that goes before its table": "del client; table.push([1], numpy.ones(1, numpy.float32)); del table",
    "an exception inside with": "with client: sys.exit(3)",
    "os._exit": "os._exit(3)",
}


@pytest.mark.parametrize("way", ENDS)
def test_a_process_ends_clean(server, alone, way):
    done = alone(f"client = muster.params.Client({server.address!r}); table = client.table('rows', 1)\n{ENDS[way]}")

    assert done.returncode == (3 if "exit(3)" in ENDS[way] else 0) and "Traceback" not in done.stderr, done.stderr
