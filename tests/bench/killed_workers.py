#!/usr/bin/env python3
"""A job of `muster run` whose workers are killed and come back: the worker, and what watches the job. For random_kills and
preload_recovery.

The workers train a small model of PyTorch in muster.torch.Elastic, or step over an array of NumPy in muster.Elastic. Each process
writes OUT.RANK.PID: one line when its program begins, then one for each step that it has committed.

usage: killed_workers.py PROGRAM OUT   (started by `muster run`; PROGRAM: torch or numpy)"""
import time

FIRST_LINE_NS = time.monotonic_ns()

import os
import pathlib
import subprocess
import sys
import typing
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
STRANGERS = pathlib.Path(os.environ.get("MUSTER_STRANGERS", pathlib.Path.home() / ".cache/muster-strangers")) / "bin"
MODULES = {"torch": "torch,torch._dynamo,muster.torch", "numpy": "numpy,muster.elastic"}
PATIENCE_S = 300


# --- A worker ---

def torch_steps(stop):
    import torch
    import muster.torch
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), 0.001)
    elastic = muster.torch.Elastic(model, optimizer)

    def forward_and_back(seed=0):
        generator = torch.Generator().manual_seed(seed)
        batch, target = torch.randn(16, 64, generator=generator), torch.randint(10, (16,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), target).backward()

    elastic.rehearse(forward_and_back, 1)
    for each in elastic.steps(10**9):
        with each:
            elastic.strategy.all_reduce(stop, "max")
            forward_and_back(each.step * 64 + each.rank)
            each.weight = 16
            optimizer.step()
        yield elastic, [parameter.detach().numpy() for parameter in model.parameters()]


def numpy_steps(stop):
    import numpy
    import muster
    total = numpy.zeros(16384)
    elastic = muster.Elastic({"total": total})
    for each in elastic.steps(10**9):
        with each:
            elastic.strategy.all_reduce(stop, "max")
            share = numpy.full(total.size, 1.0 + each.rank)
            elastic.strategy.all_reduce(share)
            total += share
        yield elastic, [total]


def work(program, out):
    """Says when its first line ran, and when each step was committed, by how many, with which state."""
    import numpy
    stop = numpy.zeros(1)
    with open(f"{out}.{os.environ['RANK']}.{os.getpid()}", "w", buffering=1, encoding="ascii") as log:
        print(0, 0, FIRST_LINE_NS, 0, file=log)
        for elastic, arrays in (torch_steps if program == "torch" else numpy_steps)(stop):
            digest = 0
            for array in arrays:
                digest = zlib.crc32(array, digest)
            print(elastic.step, elastic.size, time.monotonic_ns(), digest, file=log)
            if stop[0]:
                break
            stop[0] = os.path.exists(f"{out}.stop")
    elastic.close()


# --- The job ---

class Failure(RuntimeError):
    pass


class Line(typing.NamedTuple):
    """A committed step; the first line of a process has step 0 and size 0."""
    step: int
    size: int
    ns: int
    digest: int


class Process:
    """What one process of a worker has written so far."""

    def __init__(self, path):
        self.path, self.offset, self.lines = path, 0, []
        self.rank, self.pid = map(int, path.name.split(".")[1:])

    def read(self):
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self.offset += len(whole) + 1
            self.lines += [Line(*map(int, line.split())) for line in whole.split(b"\n")]


class Job:
    """`muster run` on n workers; what they write lies in the folder."""

    def __init__(self, options, n, folder, is_preloaded, **variables):
        self.n, self.folder, self.out, self.processes = n, folder, folder / "out", {}
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MUSTER_")}
        environment = {**clean, "PYTHONPATH": str(options.build.absolute() / "python"), "OMP_NUM_THREADS": "1", **variables}
        preload = ["--preload", MODULES[options.program]] if is_preloaded else []
        command = [options.build.absolute() / "bin/muster", "run", "-n", n, "--max-restarts", 1000, *preload, "--", options.python, __file__,
                   options.program, self.out]
        with open(folder / "log", "w", encoding="utf-8") as log:
            self.child = subprocess.Popen(list(map(str, command)), env=environment, stdout=log, stderr=log)  # pylint: disable=consider-using-with

    def text(self):
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def lives(self):
        """The newest process of each rank that has begun its program."""
        for path in self.folder.glob("out.*.*"):
            self.processes.setdefault(path, Process(path)).read()
        begun = sorted((each for each in self.processes.values() if each.lines), key=lambda each: each.lines[0].ns)
        return {each.rank: each for each in begun}

    def wait(self, is_reached, what):
        deadline = time.monotonic() + PATIENCE_S
        while not (answer := is_reached()):
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"{what} did not come: {self.text()[-2000:]}")
            time.sleep(0.01)
        return answer

    def whole(self, count):
        """The processes, when each has committed so many steps with all others."""
        def is_whole():
            found = self.lives()
            return found if len(found) == self.n and all(
                [line.size for line in each.lines[-count:]] == [self.n] * count for each in found.values()) else None
        return self.wait(is_whole, "a whole job")

    def end(self):
        """Tells the workers that this is enough, and waits until all have left."""
        (self.folder / "out.stop").touch()
        try:
            code = self.child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"the job does not end: {self.text()[-2000:]}") from None
        if code != 0:
            raise Failure(f"the job ended with {code}: {self.text()[-2000:]}")
        self.lives()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.terminate()
            self.child.wait()


def judge(job):
    """What the lines of all processes say about the job's steps and states."""
    digests, missing, differing = {}, 0, 0
    for process in job.processes.values():
        steps = [line for line in process.lines if line.step > 0]
        missing += sum(b.step - a.step != 1 for a, b in zip(steps, steps[1:]))
        for line in steps:
            differing += digests.setdefault(line.step, line.digest) != line.digest
    last = max(digests)
    missing += last - len(digests)
    at_the_end = sum(process.lines[-1].step == last for process in job.lives().values())
    return {"steps": last, "missing": missing, "differing": differing, "at_the_end": at_the_end, "exceptions": job.text().count("Traceback")}


def options_add(parser):
    """The options that both scripts have."""
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound is missed")
    parser.add_argument("--program", choices=sorted(MODULES), default="torch")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="a build of muster with its Python module")
    parser.add_argument("--python", type=pathlib.Path, default=STRANGERS / "torch/bin/python", help="an interpreter that has PyTorch and NumPy")


if __name__ == "__main__":
    work(*sys.argv[1:])
