#!/usr/bin/env python3
"""Unmodified JAX processes on `muster coordinator`: keys, barriers, collectives, deaths, rejoining, preemption, the end,
and the death of the coordinator. They are forks of this process, which has imported JAX.

Needs jax: tests/tools/install-strangers jax, or MUSTER_JAX_PYTHON names an interpreter that has it.
"""
import itertools
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import guard

guard.enter()
import forked
import interop_roles as roles
import needs
import ports

BUILD = os.environ.get("MUSTER_BINARY_DIR", "build-asan")
HERE = os.path.dirname(os.path.abspath(__file__))
TASK = os.path.join(HERE, "..", "programs", "jax_task.py")
DEADLINE_S = 120
if len(sys.argv) == 1:
    python = needs.stranger_python("jax")
    os.execv(python, [python, __file__, "forks"])
__import__("jax")
failures = []


def check(name, seen, expected):
    if seen != expected:
        failures.append(name)
        print(f"FAILED {name}: {seen!r} is not {expected!r}")


class Coordinator:
    def __init__(self, tasks, *flags):
        self.command = [os.path.join(BUILD, "bin", "muster"), "coordinator", "--tasks", str(tasks), *flags]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split()[1]

    def kill(self):
        """Returns when its clients have noticed: what they ask on a connection that has just died fails, as gRPC does it."""
        known = self.connections()
        self.process.kill()
        self.process.wait()
        until = time.monotonic() + DEADLINE_S
        while known & self.connections() and time.monotonic() < until:
            time.sleep(0.005)

    def connections(self):
        """The local ports of the sockets that are connected to it, or were and are not closed yet."""
        port = int(self.address.rsplit(":", 1)[1])
        rows = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}").readlines()[1:]]
        return {row[1] for row in rows if int(row[2].rsplit(":", 1)[1], 16) == port and row[3] in ("01", "08")}

    def stop(self):
        self.process.terminate()
        check("the coordinator ends in order", self.process.wait(DEADLINE_S), 0)


class Server(Coordinator):
    """`muster server`, which serves the same beside the rest."""

    def __init__(self, tasks):
        self.command = [os.path.join(BUILD, "bin", "muster"), "server", "--cluster", '{"coordinator": ["127.0.0.1:0"]}',
                        "--bind", "127.0.0.1", "--coordination", str(tasks)]
        self.start()


class Own:
    """JAX's own service, in its process 0."""

    def __init__(self):
        self.held = ports.hold_ports(1)[0]  # it must be known before that process starts
        self.address = f"127.0.0.1:{self.held.getsockname()[1]}"


class Task:
    def __init__(self, coordinator, number, tasks, *words, **environment):
        self.errors = tempfile.TemporaryFile()
        (stdin, self.input), (self.output, stdout) = os.pipe(), os.pipe()
        self.process = forked.Process(TASK, [coordinator.address, number, tasks, *words], environment,
                                      [stdin, stdout, self.errors.fileno()])
        os.close(stdin)
        os.close(stdout)
        self.rest = b""
        self.lines = []

    def hear(self, word):
        """The rest of the line that begins with word; None: the process ended, or the time is over."""
        until = time.monotonic() + DEADLINE_S
        while True:
            for line in self.lines:
                if line.split(" ")[0] == word.split(" ")[0] and line.startswith(word):
                    self.lines.remove(line)
                    return line[len(word):].strip()
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.output], [], [], left)[0]:
                return None
            data = os.read(self.output, 65536)
            if not data:
                return None
            *whole, self.rest = (self.rest + data).split(b"\n")
            self.lines += [line.decode() for line in whole]

    def hear_all(self):
        """Every line until its end, but for what Gloo says."""
        self.hear("no such line")
        return [line for line in self.lines if not line.startswith("[Gloo]")]

    def go_on(self):
        os.write(self.input, b"\n")

    def end(self):
        code = self.process.wait(DEADLINE_S)
        self.errors.seek(0)
        self.text = self.errors.read().decode(errors="replace")
        return code


def a_job_runs_from_begin_to_end():
    coordinator = Coordinator(3)
    words = ["keys", "barriers", "collective", "live", "shutdown"]
    for job in range(2):  # the coordinator serves the next one, too
        tasks = [Task(coordinator, i, 3, *words) for i in range(3)]
        for i, task in enumerate(tasks):
            check(f"keys of {i}", task.hear("keys"),
                  "['v0', 'v1', 'v2'] [('d/k0', 'v0'), ('d/k1', 'v1'), ('d/k2', 'v2')] True True 6 [] [0, 0, 255]")
            check(f"barriers of {i}", task.hear("barriers"), "True" if i == 0 else "passed")
            check(f"collective of {i}", task.hear("collective"), "3 [1.0, 2.0, 3.0] 6.0 6.0")
            check(f"live of {i}", task.hear("live"), "[0, 1, 2]")
            check(f"shutdown of {i}", task.hear("shut down"), "")
            check(f"exit of {i} in job {job}", task.end(), 0)
    coordinator.stop()


def jax_cannot_tell_it_from_its_own():
    """The same program on JAX's own service and on ours prints the same."""
    words = ["large", "many", "crowd", "members", "utils", "live", "shutdown"]
    heard = []
    for place in (Own(), Coordinator(4), Server(4)):
        environment = {"OWN": "1"} if isinstance(place, Own) else {}
        tasks = [Task(place, i, 4, *words, **environment) for i in range(4)]
        heard.append([task.hear_all() for task in tasks])
        for i, task in enumerate(tasks):
            check(f"exit of {i} at {type(place).__name__}", task.end(), 0)
            if task.process.returncode != 0:
                print(task.text[-2000:])
        if not isinstance(place, Own):
            place.stop()
    check("task 0 has done it all", [len(lines) > 40 and lines[-1] for lines in heard[0][:1]], ["shut down"])
    for place, lines in (("coordinator", heard[1]), ("server", heard[2])):
        for i in range(4):
            for own, ours in itertools.zip_longest(heard[0][i], lines[i]):
                check(f"{place}, task {i}", ours, own)


def a_missing_task_ends_the_wait():
    coordinator = Coordinator(2)
    task = Task(coordinator, 0, 2, INIT_S="1")
    check("without the other one it ends", task.end() != 0, True)
    check("and says why", "DEADLINE_EXCEEDED" in task.text, True)
    coordinator.stop()


def a_killed_task_is_told_to_all():
    for flags, heartbeat in (([], "6"), (["--closed-is-dead"], "100")):
        coordinator = Coordinator(3, "--heartbeat-timeout", heartbeat, *flags)
        tasks = [Task(coordinator, i, 3, "wait", HEARTBEAT_S=heartbeat) for i in range(3)]
        for task in tasks:
            check("ready", task.hear("ready"), "")
        tasks[1].process.send_signal(signal.SIGKILL)
        tasks[1].end()
        for i in (0, 2):
            check(f"{i} ends", tasks[i].end() != 0, True)
            check(f"{i} says who died {flags}", "unhealthy (stopped sending heartbeats)" in tasks[i].text, True)
        coordinator.stop()


def a_killed_task_comes_back():
    coordinator = Coordinator(3, "--recoverable", "--closed-is-dead", "--heartbeat-timeout", "100")
    settings = {"RECOVERABLE": "1", "HEARTBEAT_S": "100"}
    tasks = [Task(coordinator, i, 3, "live", "wait", "live", "wait", "live", "shutdown", **settings) for i in range(3)]
    for task in tasks:
        check("all live", task.hear("live"), "[0, 1, 2]")
    tasks[1].process.send_signal(signal.SIGKILL)
    tasks[1].end()
    for i in (0, 2):
        tasks[i].go_on()
    for i in (0, 2):
        check("two live", tasks[i].hear("live"), "[0, 2]")
    tasks[1] = Task(coordinator, 1, 3, "wait", "live", "shutdown", **settings)
    check("the new one is ready", tasks[1].hear("ready"), "")
    for task in tasks:
        task.go_on()
    for task in tasks:
        check("three live again", task.hear("live"), "[0, 1, 2]")
    for i, task in enumerate(tasks):
        check(f"exit of {i}", task.end(), 0)
    coordinator.stop()


def a_preemption_stops_all_at_one_step():
    coordinator = Coordinator(2)
    tasks = [Task(coordinator, i, 2, "preemption", "shutdown") for i in range(2)]
    for task in tasks:
        check("stepping", task.hear("stepping"), "")
    tasks[1].process.send_signal(signal.SIGTERM)
    for task in tasks:
        check("preempted", task.hear("preempted"), "")
    for task in tasks:
        check("exit", task.end(), 0)
    coordinator.stop()


def the_coordinator_is_killed_and_nobody_minds():
    with tempfile.TemporaryDirectory() as folder:
        coordinator = Coordinator(2, "--data", os.path.join(folder, "data"), "--heartbeat-timeout", "20")
        address = coordinator.address
        words = ["keys", "wait", "barriers", "collective", "live", "wait", "live", "shutdown"]
        tasks = [Task(coordinator, i, 2, *words, HEARTBEAT_S="20") for i in range(2)]
        for task in tasks:
            check("keys", task.hear("keys") is not None, True)
        for _ in range(3):
            coordinator.kill()
            coordinator.start()
            check("the address stays", coordinator.address, address)
        for task in tasks:
            task.go_on()
        for i, task in enumerate(tasks):
            check(f"barriers of {i} after it", task.hear("barriers"), "True" if i == 0 else "passed")
            check(f"collective of {i} after it", task.hear("collective"), "2 [1.0, 2.0] 3.0 3.0")
            check("live after it", task.hear("live"), "[0, 1]")
        coordinator.kill()
        for task in tasks:  # the question waits for its server
            task.go_on()
        coordinator.start()
        for i, task in enumerate(tasks):
            check("live at last", task.hear("live"), "[0, 1]")
            check(f"exit of {i}", task.end(), 0)
            if task.process.returncode != 0:
                print(task.text[-2000:])
        coordinator.stop()


def main():
    for test in (a_job_runs_from_begin_to_end, jax_cannot_tell_it_from_its_own, a_missing_task_ends_the_wait, a_killed_task_is_told_to_all,
                 a_killed_task_comes_back, a_preemption_stops_all_at_one_step,
                 the_coordinator_is_killed_and_nobody_minds):
        begun = time.monotonic()
        test()
        print(f"{test.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    sys.exit(1 if failures else 0)


main()
