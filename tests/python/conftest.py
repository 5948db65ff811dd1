"""What the tests of the package share: jobs of Python programs under `muster run`, whose workers a test kills by pid."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
import warm

SOURCE = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
MUSTER = pathlib.Path(os.environ["MUSTER_BINARY_DIR"]).absolute() / "bin" / "muster"
PATIENCE_S = 120  # a hang is a failure; nothing that works takes as long, even on a busy machine

# Each worker says what it does by lines of a file of its own.
PRELUDE = """
import os, sys, time, numpy, muster
log = open(f"log.{os.environ['RANK']}.{os.getpid()}", "w", buffering=1)
def say(*words):
    print(*words, file=log)
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.001)
is_first = not any(name.startswith(f"log.{os.environ['RANK']}.") and name != log.name for name in os.listdir("."))
"""

# Steps until there is a file "stop"; total counts them.
LOOP = """
total = numpy.zeros(1)
with muster.Strategy() as strategy:
    strategy.register("total", total)
    stop = numpy.zeros(1)
    while not stop[0]:
        try:
            strategy.begin()
            stop[0] = os.path.exists("stop")
            strategy.all_reduce(stop, "max")
        except muster.Aborted:
            continue
        total += 1
        assert total[0] == strategy.step, (total, strategy.step)
        strategy.commit()
        say("step", strategy.step, strategy.rank, strategy.size, strategy.contributors, strategy.restored, strategy.joined)
say("done", int(total[0]))
"""


def side_by_side(function, arguments):
    """Calls function(each) for each argument on a thread of its own, and returns when all have ended."""
    threads = [threading.Thread(target=function, args=(each,)) for each in arguments]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


class Job:
    """`muster run` on a program that is text."""

    def __init__(self, folder, program, n, options=(), env=None, prelude=PRELUDE, preload="", server=None, python=sys.executable):
        self.folder = folder
        (folder / "program.py").write_text(prelude + program, encoding="utf-8")
        preloads = ["--preload", preload] if preload else []
        command = [MUSTER, "run", "-n", str(n), "--json", folder / "summary.json", *preloads, *options, "--", python, "program.py"]
        clean = {k: v for k, v in os.environ.items() if not re.match(r"MUSTER_(?!BINARY_DIR|SOURCE_DIR)|TF_CONFIG|RANK$|WORLD_SIZE", k)}
        self.output = open(folder / "output", "w+", encoding="utf-8", errors="replace")
        whole = dict(clean, **(env or {}))
        self.child = server.start(command, folder, whole, self.output, self.output) if server and preload else \
            subprocess.Popen(command, cwd=folder, env=whole, stdout=self.output, stderr=self.output)

    def said(self, rank=None):
        """(task, pid, words) of all lines that workers have said."""
        lines = []
        for path in sorted(self.folder.glob("log.*")):
            task, pid = map(int, path.name.split(".")[1:])
            if rank is None or task == rank:
                lines += [(task, pid, line.split()) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        return lines

    def wait_until(self, is_reached, what):
        deadline = time.monotonic() + PATIENCE_S
        while not (found := is_reached()):
            assert self.child.poll() is None, f"the job has ended before {what}:\n{self.text()}"
            assert time.monotonic() < deadline, f"{what} did not come:\n{self.text()}"
            time.sleep(0.002)
        return found

    def wait_said(self, word, rank, count=1):
        """The pid of the worker that has said it so often."""
        def is_said():
            pids = [pid for _, pid, words in self.said(rank) if words[0] == word]
            return pids[-1] if len(pids) >= count else None
        return self.wait_until(is_said, f"{count} x {word} of worker {rank}")

    def step(self):
        """The last step that any worker has committed."""
        return max((int(words[1]) for _, _, words in self.said() if words[0] == "step"), default=0)

    def wait_step(self, step):
        self.wait_until(lambda: self.step() >= step, f"step {step}")

    def pids(self):
        """task -> pid of its latest worker that has said anything."""
        alive = {}
        for task, pid, _ in self.said():
            if pathlib.Path(f"/proc/{pid}").exists():
                alive[task] = pid
        return alive

    def kill(self, task, number=signal.SIGKILL):
        os.kill(self.pids()[task], number)

    def kill_in_turn(self, tasks, step, n):
        """Kills each of the tasks when all n workers are there and have done that step, and waits for its next life, which says "opened".
        Then workers that wait for a file "go" have it."""
        for task in tasks:
            self.wait_until(lambda: len(self.pids()) == n and self.step() >= step, f"step {step} of all")
            self.kill(task)
            self.wait_until(lambda t=task: len({pid for _, pid, words in self.said(t) if words[0] == "opened"}) == 2, "it is back")
        self.touch("go")

    def stop(self):
        (self.folder / "stop").touch()

    def touch(self, name):
        (self.folder / name).touch()

    def text(self):
        self.output.flush()
        return (self.folder / "output").read_text(encoding="utf-8", errors="replace") + "".join(f"{line}\n" for line in self.said()[-20:])

    def end(self, code=0):
        """The summary of the run, when it has ended as it should."""
        try:
            assert self.child.wait(PATIENCE_S) == code, self.text()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job does not end:\n{self.text()}") from None
        assert "AddressSanitizer" not in self.text() and "runtime error" not in self.text(), self.text()
        return json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def warm_server(request):
    """What takes seconds to import is imported once for all processes of a file: the modules that PRELOAD of the file names. (torch
    imports torch._dynamo when an optimizer is made, which takes half as long as torch itself.) None: the file has no PRELOAD."""
    modules = getattr(request.module, "PRELOAD", "")
    server = warm.Server(modules) if modules else None
    yield server
    if server:
        server.close()


@pytest.fixture
def job(tmp_path, request, warm_server):
    """Starts a job; what is left of it is ended behind the test. preload="": with an interpreter of its own."""
    jobs = []

    def start(program, n, *options, **more):
        folder = tmp_path / str(len(jobs))
        folder.mkdir()
        more.setdefault("preload", getattr(request.module, "PRELOAD", ""))
        jobs.append(Job(folder, program, n, options, server=warm_server, **more))
        return jobs[-1]
    yield start
    for each in jobs:
        if each.child.poll() is None:
            each.child.send_signal(signal.SIGTERM)
            each.child.wait(PATIENCE_S)
        each.output.close()


@pytest.fixture
def alone(tmp_path, warm_server):
    """Runs a program by itself, without a launcher, and gives its output and exit code."""
    def run_warm(text, env):
        with open(tmp_path / "out", "w+", encoding="utf-8") as out, open(tmp_path / "err", "w+", encoding="utf-8") as err:
            child = warm_server.start(text, tmp_path, env, out, err)
            try:
                child.wait(PATIENCE_S)
            finally:
                child.kill()
            return subprocess.CompletedProcess(text, child.returncode, *(each.seek(0) or each.read() for each in (out, err)))

    def run(program, prelude="import os, sys, numpy, muster\n"):
        clean = {k: v for k, v in os.environ.items() if not re.match(r"MUSTER_(?!BINARY_DIR|SOURCE_DIR)|TF_CONFIG|RANK$|WORLD_SIZE", k)}
        done = run_warm(prelude + program, clean) if warm_server else \
            subprocess.run([sys.executable, "-c", prelude + program], cwd=tmp_path, env=clean, capture_output=True, text=True,
                           timeout=PATIENCE_S, check=False)
        assert "AddressSanitizer" not in done.stderr and "runtime error" not in done.stderr, done.stderr
        return done
    return run
