"""Real processes to which memory is refused, and whose system calls fail, by seed (tests/torture/faults.h). A scenario starts them, and says
what must hold afterwards; the rest holds for all: no crash, no report of a sanitizer, no hang, a reason with each exit code that is not 0,
nothing left behind. What fails depends on the seed alone; when, on the machine too: a seed that fails may have to be run a few times."""
import argparse
import concurrent.futures
import errno
import functools
import math
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import cases
from puppets import BINARIES, CLEAN, PATIENCE_S

LIBRARY = os.path.join(BINARIES, "lib", "libmuster_faults.so")
SANITIZER_CODE = 99
CRASHES = re.compile(r"ERROR: \w+Sanitizer|runtime error:|Assertion .* failed|\bSIG(?:SEGV|BUS|ABRT|ILL|FPE)\b|"
                     rf"exit(?:ed with)? code {SANITIZER_CODE}\b")
SANITIZERS = {"ASAN_OPTIONS": f"verify_asan_link_order=0:exitcode={SANITIZER_CODE}:abort_on_error=0",
              "UBSAN_OPTIONS": f"print_stacktrace=1:exitcode={SANITIZER_CODE}"}
# OpenSSL loses some of its own when memory lacks while it starts, or while it looks for an algorithm. Its functions are seen by a slow
# unwinder only.
OPENSSL = {"ASAN_OPTIONS": SANITIZERS["ASAN_OPTIONS"] + ":fast_unwind_on_malloc=0"}
OPENSSL_LEAKS = "leak:OPENSSL_init_\nleak:_fetch\n"
MEMORY = re.compile(r"(?i)memory|RESOURCE_EXHAUSTED|resource exhausted")
# Another process of the world that has failed, or is gone: as its address, its rank, or its number.
OTHERS = re.compile(r"127\.0\.0\.1:\d+|worker:\d|pid \d+|connection (?:lost|closed)|reset the stream|the launcher before this one")
EXHAUSTED = ("ENOMEM", "ENOBUFS", "EMFILE", "ENFILE", "EAGAIN", "EAI_MEMORY")
KEPT_FAILURES = 6  # of each process, shown with what went wrong


def draw_log(rng, high):
    """From 1 to high, as often below its root as above."""
    return int(math.exp(rng.uniform(0, math.log(high))))


class World:
    """One run: a folder of its own, processes, and what fails in those that are named."""

    def __init__(self, scenario, seed):
        self.seed = seed
        self.rng = random.Random(f"{scenario}:{seed}")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"torture-{scenario}-{seed}-"))
        self.temporary = self.folder / "temporary"
        self.temporary.mkdir()
        self.plan, self.processes, self.more = {}, [], {}
        (self.folder / "leaks").write_text(OPENSSL_LEAKS)

    def draw_faults(self, spans):
        """spans: programs whose work may fail, and about how many allocations and calls one of them makes in this scenario."""
        programs = self.rng.choice(list(spans))
        kinds = self.rng.choice(("memory", "calls", "memory,calls"))
        span = spans[programs][kinds == "calls"]
        plan = {"SEED": self.rng.getrandbits(32), "KINDS": kinds, "PROGRAMS": programs}
        shape = self.rng.choice(("one", "row", "rate", "rate"))
        if shape == "rate":
            plan |= {"PER_MILLION": self.rng.choice((1000, 3000, 10_000, 30_000, 100_000)), "AFTER": draw_log(self.rng, span) // 4,
                     "ROW": self.rng.choice((1, 1, 3)), "MAX": self.rng.choice((3, 10, 30))}
        else:
            row = self.rng.choice((3, 10, 30)) if shape == "row" else 1
            plan |= {"PER_MILLION": 1_000_000, "AFTER": draw_log(self.rng, span), "ROW": row, "MAX": row}
        self.plan = {f"FAULTS_{key}": str(value) for key, value in plan.items()}

    def use(self, variables):
        self.more |= variables

    def variables(self):
        return dict(CLEAN, **SANITIZERS, LSAN_OPTIONS=f"suppressions={self.folder}/leaks:print_suppressions=0", TMPDIR=str(self.temporary), TORTURE_WORLD=str(self.folder)) | self.more

    def start(self, name, *command, has_faults=True, **variables):
        faults = dict(self.plan, LD_PRELOAD=LIBRARY, FAULTS_LOG=str(self.folder / "faults")) if has_faults else {}
        self.processes.append(Process(self, name, command, self.variables() | faults | variables))
        return self.processes[-1]

    def run(self, name, *command, **options):
        process = self.start(name, *command, **options)
        process.end()
        return process

    def left_processes(self):
        """Those that a process of this world has started, and that live on."""
        mark, found = f"TORTURE_WORLD={self.folder}".encode(), {}
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "environ").read_bytes().split(b"\0") and "\nState:\tZ" not in (path / "status").read_text():
                    found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it has ended meanwhile, or is not ours
        return found

    def check_left(self):
        """All have ended; what they had in the folder for temporary files is gone, but for flight recorders (docs/trace.md)."""
        until = time.monotonic() + PATIENCE_S
        while left := self.left_processes():
            if time.monotonic() > until:
                raise AssertionError(f"processes go on: {left}")
            time.sleep(0.02)
        recorders = self.temporary / f"muster-{os.getuid()}"
        left = [str(path) for path in self.temporary.rglob("*")
                if path != recorders and not (path.parent == recorders and path.name.endswith(".trace.jsonl"))]
        if left and not self.has_failed("unlink"):
            raise AssertionError(f"temporary files are left, and no unlink has failed: {left}")

    def check_folder(self, names):
        """No other files are left beside these; but where one could not be removed."""
        stems = tuple(names)
        left = {path.name for path in self.folder.iterdir() if path.name.startswith(stems)} - set(names)
        if left and not self.has_failed("unlink"):
            raise AssertionError(f"files are left: {left}")

    def failures(self):
        """Call and error of each failure."""
        for path in self.folder.glob("faults.*"):
            yield from re.findall(r"(?m)^\S+: (\w+) \d+ of thread \d+: (.*)$", path.read_text(errors="replace"))

    def has_failed(self, call):
        return any(name == call for name, _ in self.failures())

    def is_reason(self, pid, text):
        """An error text names what has failed: memory, the system call's error or a file; or who else has."""
        if OTHERS.search(text) and any(path.suffix != f".{pid}" for path in self.folder.glob("faults.*")):
            return True
        for call, error in set(self.failures()):
            words = (error, call, os.strerror(getattr(errno, error, 0)))
            if any(word.lower() in text.lower() for word in words) or (error in EXHAUSTED and MEMORY.search(text)):
                return True
        return str(self.folder) in text

    def discard(self):
        for pid in self.left_processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.processes:
            process.child.wait()

    def account(self):
        """What failed where, for who looks for the reason."""
        lines = ["", f"in {self.folder}, with " + " ".join(f"{key}={value}" for key, value in self.plan.items())]
        for process in self.processes:
            lines.append(f"--- {process.name}: {' '.join(process.command)}\nended with {process.child.poll()}")
            lines += [stream[-6000:] for stream in (process.out(), process.err()) if stream]
        for path in sorted(self.folder.glob("faults.*")):
            lines.append(f"--- failures of process {path.suffix[1:]}, the last {KEPT_FAILURES}")
            lines += failures_of(path)[-KEPT_FAILURES:]
        return "\n".join(lines)


class Process:
    def __init__(self, world, name, command, variables):
        self.world, self.name, self.command = world, name, [str(word) for word in command]
        number = len(world.processes)
        self.files = [world.folder / f"{number}-{name}.{stream}" for stream in ("out", "err")]
        with open(self.files[0], "wb") as out, open(self.files[1], "wb") as err:
            self.child = subprocess.Popen(self.command, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=world.folder)
        self.is_checked = False

    def out(self):
        return self.files[0].read_text(errors="replace")

    def err(self):
        return self.files[1].read_text(errors="replace")

    def hear(self, pattern):
        """The match of a line of standard output; None: it has ended without."""
        return self.hear_in(self.out, pattern)

    def hear_error(self, pattern):
        return self.hear_in(self.err, pattern)

    def hear_in(self, read, pattern):
        until = time.monotonic() + PATIENCE_S
        while True:
            has_ended = self.child.poll() is not None
            if match := re.search(pattern, read()):
                return match
            if has_ended:
                return None
            if time.monotonic() > until:
                raise AssertionError(f"{self.name} neither says {pattern!r} nor ends")
            time.sleep(0.01)

    def end(self):
        """Wait for it; its exit code."""
        try:
            self.child.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} hangs: {stacks_of(self.child.pid)}") from None
        return self.check_end()

    def stop(self, number=signal.SIGTERM):
        self.child.send_signal(number)
        if number != signal.SIGKILL:
            return self.end()
        self.child.wait()
        return -number

    def check_end(self):
        code = self.child.returncode
        cases.note_assertion()
        if code < 0:
            raise AssertionError(f"{self.name} died of {signal.Signals(-code).name}")
        if crash := CRASHES.search(self.err() + self.out()):
            raise AssertionError(f"{self.name} crashed: {crash[0]}")
        if code == SANITIZER_CODE:
            raise AssertionError(f"{self.name} ended with a report of a sanitizer")
        if code != 0 and not self.err().strip():
            raise AssertionError(f"{self.name} ended with {code} and does not say why")
        if code != 0 and not self.world.is_reason(self.child.pid, self.err()):
            raise AssertionError(f"{self.name} ended with {code} and does not say what failed")
        return code


def stacks_of(pid):
    """What its threads wait for, as far as the kernel says."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        try:
            found.append(f"{(task / 'comm').read_text().strip()} in {(task / 'wchan').read_text().strip()}")
        except OSError:
            continue
    return "; ".join(found)


@functools.lru_cache(maxsize=4096)
def place_of(binary, offset):
    """Function and line of an address of one of our programs."""
    done = subprocess.run(["addr2line", "-f", "-s", "-e", binary, hex(int(offset, 16) - 1)], text=True, capture_output=True, check=False)
    words = done.stdout.split()
    return " ".join(words[:2]) if done.returncode == 0 and words[:1] != ["??"] else offset


def failures_of(path):
    """Each with its stack, from the innermost function of ours outwards."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        match = re.match(r"(/\S+?)\((.*?)(\+0x[0-9a-f]+)?\)\[", line)
        if match is None:
            found.append(line)
        elif "libmuster_faults" in match[1] or not found:
            continue
        elif match[1].startswith(BINARIES):
            found[-1] += "\n    " + place_of(match[1], (match[3] or "+0x0")[1:])
        else:
            found[-1] += f"\n    {os.path.basename(match[1])} {match[2]}"
    return found


def run_seed(scenario, seed):
    """None, or what went wrong; then the folder stays."""
    world = World(scenario.__name__, seed)
    try:
        scenario(world)
        world.check_left()
    except Exception as error:
        what = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
        world.discard()
        return f"{scenario.__name__} {seed}: {what}{world.account()}"
    except BaseException:
        world.discard()
        raise
    world.discard()
    shutil.rmtree(world.folder)
    return None


def run_seeds(case, scenario, seeds):
    """As a case of unittest; all of them run, and all faults are told."""
    faults = [fault for seed in seeds if (fault := run_seed(scenario, seed)) is not None]
    case.assertEqual(faults, [], "\n\n".join(faults))


def run_many(scenarios):
    """--seeds 1..500 [--scenario NAME] [--jobs N]: for people. Returns False without --seeds."""
    if "--seeds" not in sys.argv:
        return False
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", required=True, metavar="FROM..TO")
    parser.add_argument("--scenario", choices=[scenario.__name__ for scenario in scenarios], action="append")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    first, _, last = options.seeds.partition("..")
    chosen = [scenario for scenario in scenarios if not options.scenario or scenario.__name__ in options.scenario]
    pairs = [(scenario, seed) for seed in range(int(first), int(last or first) + 1) for scenario in chosen]
    count = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for fault in pool.map(lambda pair: run_seed(*pair), pairs):
            if fault is not None:
                count += 1
                print(fault, flush=True)
    print(f"{len(pairs)} runs, {count} failed")
    sys.exit(count > 0)
