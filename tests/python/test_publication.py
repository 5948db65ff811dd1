"""muster.publication: versions go whole from a publisher, which dies by kill -9, to readers; their memory lives while it is used."""
import os
import subprocess
import sys
import threading
import time

import conftest
import numpy
import pytest
from test_params import interrupt_when_it_waits
from test_params_requests import files  # noqa: F401 (a fixture)

import muster

ARRAYS = {"f32": numpy.float32, "f64": numpy.float64, "f16": numpy.float16, "i32": numpy.int32, "i64": numpy.int64,
          "u32": numpy.uint32, "u64": numpy.uint64, "i8": numpy.int8, "u8": numpy.uint8, "bool": numpy.bool_}


@pytest.fixture
def registry(tmp_path):
    with open(tmp_path / "registry.log", "w", encoding="utf-8") as log:
        child = subprocess.Popen([conftest.MUSTER, "registry", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=log, text=True)
        yield child.stdout.readline().split()[1]
        child.terminate()
        assert child.wait(conftest.PATIENCE_S) == 0
        child.stdout.close()


@pytest.fixture
def publisher(registry):
    with muster.publication.Publisher("weights", registry) as one:
        yield one


@pytest.fixture
def reader(registry):
    with muster.publication.Reader("weights", registry) as one:
        yield one


def test_a_version_has_all_tensors_of_each_type(publisher, reader):
    given = {name: numpy.arange(100).astype(array) for name, array in ARRAYS.items()}

    assert publisher.put(given) == 1 and publisher.version == 1

    version = reader.take(1)
    assert (version.number, version.bytes, len(version)) == (1, sum(each.nbytes for each in given.values()), len(given))
    for name, array in version.items():
        assert version.dtype(name) == name and array.dtype == given[name].dtype and (array == given[name]).all()
    assert reader.newest == reader.current == 1 and reader.stats()["versions"] == 1 and publisher.stats()["version"] == 1


def test_readers_get_arrays_in_their_shapes(publisher, reader):
    flat = {"v": numpy.arange(6.0), "w": numpy.arange(5, dtype=numpy.int8)}
    given = {"m": numpy.arange(12.0).reshape(3, 2, 2), "one": numpy.array(7.0), "none": numpy.zeros((0, 4), numpy.float16), **flat}

    publisher.put(given)
    version = reader.take(1)
    publisher.put(flat)
    plain = reader.take(2)

    assert set(version) == set(given) and len(version) == 5 and set(plain) == set(flat)
    for name, array in given.items():
        assert (version[name].shape, version[name].dtype) == (array.shape, array.dtype) and (version[name] == array).all()
    with pytest.raises(ValueError, match="another name than 'muster.shapes'"):
        publisher.put({"muster.shapes": numpy.zeros(1)})


def test_bytes_of_a_version_stay_while_they_are_used(publisher, reader):
    weights = numpy.zeros(100000, numpy.float32)
    publisher.put({"w": weights})
    first = reader.take()["w"]  # of the version only this is kept

    weights += 1
    publisher.put({"w": weights}, wait_readers=1)
    second = reader.take(2)

    assert (first == 0).all() and (second["w"] == 1).all()
    with pytest.raises(ValueError):
        first[0] = 7
    weights += 1
    publisher.put({"w": weights})
    with pytest.raises(muster.DeadlineExceeded):
        reader.take(3, timeout=0.1)  # there is room for two
    del first
    assert (reader.take(3)["w"] == 2).all()


def test_a_version_is_given_back_while_a_call_waits_for_the_next(publisher, reader):
    publisher.put({"w": numpy.zeros(9)})
    used = [reader.take(1)]
    publisher.put({"w": numpy.ones(9)}, wait_readers=1)
    used.append(reader.take(2))
    publisher.put({"w": numpy.full(9, 2.0)})
    thread = threading.Thread(target=lambda: (time.sleep(0.02), used.pop(0)))
    thread.start()

    assert (reader.take(3)["w"] == 2).all()

    thread.join()


def test_memory_outlives_its_reader(publisher, registry):
    publisher.put({"w": numpy.ones(100000)})
    reader = muster.publication.Reader("weights", registry)
    weights = reader.take(1)["w"]

    reader.close()
    reader.close()
    publisher.close()

    assert reader.closed and weights.sum() == 100000
    for call in (reader.take, reader.stats, lambda: reader.newest):
        with pytest.raises(muster.FailedPrecondition, match="closed"):
            call()
    del reader, weights


def test_readers_that_are_missing_are_told(publisher, reader):
    publisher.put({"w": numpy.ones(9)})
    reader.take(1)

    with pytest.raises(muster.DeadlineExceeded):
        publisher.put({"w": numpy.zeros(9)}, wait_readers=2, timeout=0.2)

    assert publisher.version == 2 and (reader.take(2)["w"] == 0).all()
    assert publisher.put({"w": numpy.ones(9)}, wait_readers=muster.publication.ALL) == 3


def test_an_earlier_publisher_is_refused(registry):
    with muster.publication.Publisher("weights", registry) as first:
        first.put({"w": numpy.ones(9)})
        with muster.publication.Publisher("weights", registry) as second:
            with pytest.raises(muster.Aborted):
                first.put({"w": numpy.ones(9)})
            assert second.put({"w": numpy.ones(9)}) == 2


WRONG = {
    "without tensors": (muster.InvalidArgument, {}),
    "a name twice": (muster.InvalidArgument, [("w", numpy.ones(1)), ("w", numpy.ones(1))]),
    "a name that is a number": (TypeError, {1: numpy.ones(1)}),
    "without a name": (TypeError, {None: numpy.ones(1)}),
    "a list of numbers": (TypeError, {"w": [1, 2]}),
    "memory that is not contiguous": ((ValueError, BufferError), {"w": numpy.ones((4, 4))[:, ::2]}),
    "complex numbers": (TypeError, {"w": numpy.ones(1, complex)}),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_tensors_make_no_version(publisher, what):
    error, tensors = WRONG[what]

    with pytest.raises(error):
        publisher.put(tensors)

    assert publisher.version == 0 and publisher.put({"w": numpy.ones(9)}) == 1


def test_ctrl_c_ends_a_take_that_waits(publisher, reader):
    thread = interrupt_when_it_waits()

    with pytest.raises(KeyboardInterrupt):
        reader.take(1, timeout=conftest.PATIENCE_S)

    thread.join()
    publisher.put({"w": numpy.ones(9)})
    assert reader.take(1).number == 1


def test_ctrl_c_ends_a_put_that_waits(publisher, reader):
    thread = interrupt_when_it_waits()

    with pytest.raises(KeyboardInterrupt):
        publisher.put({"w": numpy.ones(9)}, wait_readers=2, timeout=conftest.PATIENCE_S)

    thread.join()
    assert publisher.closed
    with pytest.raises(muster.FailedPrecondition):
        publisher.put({"w": numpy.ones(9)})
    with pytest.raises(muster.FailedPrecondition):
        publisher.version


def test_a_fork_is_refused(publisher, reader):
    publisher.put({"w": numpy.ones(9)})
    version = reader.take(1)
    pid = os.fork()
    if pid == 0:
        refused = 0
        for call in (reader.take, lambda: publisher.put({"w": numpy.ones(9)})):
            try:
                call()
            except RuntimeError as error:
                refused += "forked" in str(error)
        del version
        reader.close()
        publisher.close()
        os._exit(refused)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    assert publisher.put({"w": numpy.zeros(9)}) == 2 and (version["w"] == 1).all()


ENDS = {
    "without close": "",
    "a version that is used last": "del publisher; del reader; w = version['w']; del version; assert w.sum() == 9",
    "a reader that goes first": "reader.close(); del version",
    "an exception inside with": "with publisher, reader: sys.exit(3)",
    "os._exit": "os._exit(3)",
}


@pytest.mark.parametrize("way", ENDS)
def test_a_process_ends_clean(registry, alone, way):
    done = alone(f"""
publisher = muster.publication.Publisher("weights", {registry!r})
publisher.put({{"w": numpy.ones(9)}})
reader = muster.publication.Reader("weights", {registry!r})
version = reader.take(1)
{ENDS[way]}""")

    assert done.returncode == (3 if "exit(3)" in ENDS[way] else 0) and "Traceback" not in done.stderr, done.stderr


def test_engines_switch_whole_versions_while_the_trainer_dies(registry):
    program = [sys.executable, conftest.SOURCE / "examples/python/weights.py"]
    trainer = subprocess.Popen([*program, "train", registry])
    engines = [subprocess.Popen([*program, "serve", registry], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    def version(engine):
        """That one request is answered with; 0 is the answer when both layers are of one version."""
        engine.stdin.write("1\n")
        engine.stdin.flush()
        word, number, _, answer = engine.stdout.readline().split()
        assert (word, answer) == ("version", "0")
        return int(number)

    seen = [0, 0]
    for kill_at in (20, 40, 200):
        while min(seen) < kill_at:
            now = [version(engine) for engine in engines]
            assert now[0] >= seen[0] and now[1] >= seen[1], (seen, now)
            seen = now
        if kill_at < 200:
            trainer.kill()
            trainer.wait()
            trainer = subprocess.Popen([*program, "train", registry])

    assert trainer.wait(conftest.PATIENCE_S) == 0
    for engine in engines:
        engine.communicate(timeout=conftest.PATIENCE_S)
        assert engine.returncode == 0


# --- TLS ---

def policy(path, name):
    path.write_text('{"name": "p", "allow_rules": [{"name": "r", "source": {"principals": ["' + name + '"]}, "request": {"paths": '
                    '["/muster.params.v1.Publication/Read"]}}]}', encoding="utf-8")
    return str(path)


def test_versions_pass_under_tls_to_those_that_the_policy_names(registry, files, tmp_path):
    ours = {}
    for name in ("trainer", "reader", "stranger"):
        cert, key = files.issue(name, f"DNS:{name}.example,DNS:muster-link")
        ours[name] = {"tls_ca": files.ca, "tls_cert": cert, "tls_key": key}
    rules = policy(tmp_path / "policy.json", "reader.example")
    with (muster.publication.Publisher("weights", registry, authorization=rules, **ours["trainer"]) as publisher,
          muster.publication.Reader("weights", registry, listen="127.0.0.1:0", authorization=rules, **ours["reader"]) as first,
          muster.publication.Reader("weights", registry, host_key="other", **ours["reader"]) as second):
        publisher.put({"w": numpy.arange(100000.0)}, wait_readers=1)

        assert (first.take(1)["w"] == numpy.arange(100000.0)).all() and (second.take(1)["w"][5:7] == [5, 6]).all()

        named = dict(ours["reader"], tls_peer_names="*.example")
        with muster.publication.Reader("weights", registry, host_key="other", **named) as third:
            assert (third.take(1)["w"][5:7] == [5, 6]).all()

        for words, text in ((dict(named, tls_peer_names=["other.example"]), ""), (ours["stranger"], "stranger.example may not call /muster.params.v1.Publication/Read"),
                            ({"tls_ca": files.ca}, ""), ({}, "")):
            with muster.publication.Reader("weights", registry, **words) as refused:
                for seconds in (0.5, 5, 50):    # on a busy machine the publisher may not have answered in the first time
                    with pytest.raises(muster.DeadlineExceeded) as late:
                        refused.take(1, timeout=seconds)
                    if text in str(late.value):
                        break
                assert text in str(late.value)


def test_wrong_files_of_tls_are_named(registry, files, tmp_path):
    cert, key = files.issue("listener", "DNS:muster-link")
    for kind in (muster.publication.Publisher, muster.publication.Reader):
        for words, error, text in (({"tls_cert": files.ca}, ValueError, "tls_cert and tls_key must both be given"),
                                   ({"tls": True, "listen": "127.0.0.1:0"}, ValueError, "listens under TLS must have a certificate"),
                                   ({"tls_ca": str(tmp_path / "no.pem"), "tls_cert": cert, "tls_key": key}, muster.NotFound, "no.pem"),
                                   ({"authorization": str(tmp_path / "no.json")}, muster.NotFound, "no.json cannot be read"),
                                   ({"tls_peer_names": ["a", 3]}, TypeError, "tls_peer_names must be a name, or a list of names, got"),
                                   ({"tls_peer_names": ["a"] * 65, "tls_cert": cert, "tls_key": key}, ValueError, "at most 64 names, got 65"),
                                   ({"authorization": files.ca}, muster.InvalidArgument, "the policy .*ca.pem")):
            with pytest.raises(error, match=text):
                kind("weights", registry, **words)
