"""Members of a job as puppets (tests/programs/puppet/): a test says, command by command, what each of them does."""
import collections
import os
import pathlib
import queue
import re
import signal
import subprocess
import tempfile
import threading

import cases

BINARIES = os.environ["MUSTER_BINARY_DIR"]
MUSTER = os.path.join(BINARIES, "bin", "muster")
PROGRAMS = os.path.join(BINARIES, "tests", "programs")
CLEAN = {k: v for k, v in os.environ.items()
         if not re.match(r"MUSTER_(?!BINARY_DIR|SOURCE_DIR)|TF_CONFIG|RANK$|WORLD_SIZE", k)}
PATIENCE_S = float(os.environ.get("PUPPETS_PATIENCE_S", 120))  # a hang is a failure; nothing that works takes as long, even on a busy machine

with open(os.path.join(os.environ["MUSTER_SOURCE_DIR"], "net", "link", "peer_version.h"), encoding="utf-8") as header:
    PEER_VERSION = int(re.search(r"MUSTER_PEER_VERSION (\d+)u", header.read()).group(1))


class Puppet:
    def __init__(self, registry, rank, size, prefix=(), **variables):
        env = dict(CLEAN, MUSTER_REGISTRY=registry, RANK=str(rank), WORLD_SIZE=str(size))
        env.update({k: str(v) for k, v in variables.items()})
        env = {k: v for k, v in env.items() if variables.get(k, v) is not None}
        self.rank = rank
        self.tell_others = lambda: ""  # what all of its job have done last, when it hangs
        self.child = subprocess.Popen([*prefix, os.path.join(PROGRAMS, "puppet")], env=env, text=True, bufsize=1,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.errors = collections.deque(maxlen=200)
        self.answers = queue.Queue()
        self.threads = [threading.Thread(target=self.read, args=args, daemon=True)
                        for args in ((self.child.stdout, self.answers.put), (self.child.stderr, self.errors.append))]
        for thread in self.threads:
            thread.start()

    def read(self, pipe, take):
        for line in pipe:
            take(line.rstrip("\n"))
        if pipe is self.child.stdout:
            take(None)

    def tell(self, command):
        self.child.stdin.write(command + "\n")

    def hear(self):
        try:
            line = self.answers.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError(f"rank {self.rank} does not answer; it said {list(self.errors)}{self.tell_others()}") from None
        if line is None:
            raise AssertionError(f"rank {self.rank} is gone ({self.child.wait()}); it said {list(self.errors)}")
        return line

    def ask(self, command):
        self.tell(command)
        return self.hear()

    def ok(self, command):
        return ok(self.ask(command))

    def has_answered(self):
        return not self.answers.empty()

    def is_alive(self):
        return self.child.poll() is None

    def send_signal(self, number):
        self.child.send_signal(number)

    def kill(self):
        self.child.kill()
        self.child.wait()

    def end(self):
        """Close in order, and give the exit code: that of the sanitizers, too."""
        self.child.stdin.close()
        code = self.child.wait(timeout=PATIENCE_S)
        for thread in self.threads:
            thread.join()
        cases.note_assertion()
        assert code == 0, (self.rank, code, list(self.errors))

    def discard(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.kill()
        self.child.wait()
        for thread in self.threads:
            thread.join()
        for pipe in (self.child.stdin, self.child.stdout, self.child.stderr):
            try:
                pipe.close()
            except BrokenPipeError:
                pass


def ok(line):
    """The fields of an answer that must be "ok name=value …"."""
    cases.note_assertion()
    assert line == "ok" or line.startswith("ok "), line
    return {name: float(value) if re.fullmatch(r"[-+.\de]+", value) else value
            for name, value in (word.split("=", 1) for word in line.split()[1:])}


class Job:
    """A registry and the puppets that meet there."""

    def __init__(self, prefix=(), ip="127.0.0.1"):
        self.registry = subprocess.Popen([*prefix, MUSTER, "registry", "--listen", f"{ip}:0", "--log-level", "error"],
                                         env=CLEAN, text=True, stdout=subprocess.PIPE)
        words = self.registry.stdout.readline().split()
        assert words[:1] == ["listening"], words
        self.address = words[1]
        self.puppets = []
        self.traces = tempfile.TemporaryDirectory()

    def puppet(self, rank, size, **variables):
        self.puppets.append(Puppet(self.address, rank, size, **{"MUSTER_TRACE_DIR": self.traces.name, **variables}))
        self.puppets[-1].tell_others = self.tell_hang
        return self.puppets[-1]

    def tell_hang(self, count=20):
        """The last events of all members that are left, which they write as they die of SIGABRT (docs/trace.md)."""
        for puppet in filter(Puppet.is_alive, self.puppets):
            puppet.send_signal(signal.SIGABRT)
            puppet.send_signal(signal.SIGCONT)  # a case may have stopped it
            try:
                puppet.child.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                puppet.kill()
        return "".join(f"\n{file.name}: {line}" for file in sorted(pathlib.Path(self.traces.name).iterdir())
                       for line in file.read_text(encoding="utf-8").splitlines()[-count:])

    def members(self, size, op_timeout_s=0, state=(("total", 8),), **variables):
        """`size` puppets that have opened and registered their state; its values are 1 + the rank."""
        members = [self.puppet(rank, size, **variables) for rank in range(size)]
        every(members, f"open {op_timeout_s}")
        for name, count in state:
            each(members, lambda m: f"register {name} {count} {m.rank + 1}")
        return members

    def stop(self):
        for puppet in self.puppets:
            puppet.discard()
        self.registry.terminate()
        self.registry.wait(timeout=PATIENCE_S)
        self.registry.stdout.close()
        self.traces.cleanup()


def ask_each(members, command):
    """What each answers to command(member), all at the same time."""
    for member in members:
        member.tell(command(member))
    return [member.hear() for member in members]


def each(members, command):
    return [ok(line) for line in ask_each(members, command)]


def ask_every(members, command):
    return ask_each(members, lambda _: command)


def every(members, command):
    return each(members, lambda _: command)
