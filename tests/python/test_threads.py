"""Threads that share the objects of the package (threads.py), with the GIL and in an interpreter that has none."""
import os
import subprocess
import sys

import conftest
import pytest
from test_params import server  # noqa: F401 (a fixture)
from test_publication import registry  # noqa: F401 (a fixture)

sys.path.insert(0, str(conftest.SOURCE / "tests/lib"))
import needs

PROGRAM = conftest.SOURCE / "tests/python/threads.py"
FREE = "muster_free_threaded"
ALONE = ("strategy", "tensors", "requests", "cancel", "close", "replicas", "numbers", "dataset")


class Interpreter:
    """python, and what its environment has in place of this one's: the free-threaded one has a module of its own, without sanitizers."""

    def __init__(self, python, gil, env):
        self.python, self.gil, self.env = python, gil, env

    def run(self, *words):
        done = subprocess.run([self.python, "-W", "error", PROGRAM, *words], env={**os.environ, **self.env}, capture_output=True, text=True,
                              timeout=conftest.PATIENCE_S, check=False)
        assert (done.returncode, done.stdout) == (0, f"gil {self.gil}\n"), done.stdout + done.stderr
        assert "AddressSanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr


@pytest.fixture(params=["with_the_gil", "without_a_gil"])
def interpreter(request):
    if request.param == "with_the_gil":
        return Interpreter(sys.executable, True, {"THREADS_ROUNDS": "15"})
    python = needs.stranger_path(f"{FREE}/bin/python")
    if python is None:
        print("skipped: " + needs.stranger_is_missing(FREE))
        pytest.skip(needs.stranger_is_missing(FREE))
    return Interpreter(python, False, {"THREADS_ROUNDS": "25", "LD_PRELOAD": "", "PYTHONPATH": ""})


@pytest.mark.parametrize("case", ALONE)
def test_threads_share_what_needs_no_other_process(interpreter, case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    interpreter.run(case)


def test_threads_share_a_client(interpreter, server):
    interpreter.run("params", server.address)


@pytest.mark.parametrize("case", ["publication", "handover"])
def test_threads_share_a_reader_and_a_publisher(interpreter, registry, case):
    interpreter.run(case, registry)


@pytest.mark.parametrize("case", ["strategy", "replicas"])
def test_threads_of_two_members_meet(interpreter, case, job):
    run = job(f"import runpy, sys\nsys.argv[1:] = [{case!r}]\nrunpy.run_path({str(PROGRAM)!r}, run_name='__main__')\n", 2, prelude="",
              env=interpreter.env, python=interpreter.python)

    run.end()
    assert run.text().count(f"gil {interpreter.gil}") == 2, run.text()
