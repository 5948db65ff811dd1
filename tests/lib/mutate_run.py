"""The entries of ctest as tests/tools/mutate runs them: below the guard, with limits, in a network of their own, ended when they must be."""
import ctypes
import dataclasses
import fcntl
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import guard

SKIPPED = 77
TIMEOUT_FACTOR, TIMEOUT_MORE_S = 10, 10
MEMORY_MAX_KIB = 4 << 20  # of all processes of a test
PROCESSES_MAX = 500
FILE_MAX_BYTES = 1 << 31
LOOK_S = 0.5
END_S = 30
SIM_SEEDS = "1..16"
CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000


def leave_network():
    """Nothing that is started from now on reaches another machine; False: this machine does not allow it."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNET) != 0:
        if libc.unshare(CLONE_NEWNET | CLONE_NEWUSER) != 0:
            return False
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            pathlib.Path("/proc/self", name).write_text(text, encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
    return True


@dataclasses.dataclass(frozen=True)
class Entry:
    name: str
    command: tuple
    environment: tuple
    folder: str
    is_quick: bool

    @property
    def program(self):
        """What must be the same for a record to hold: the program or script of the test."""
        words = self.command
        at = next((i for i, word in enumerate(words) if word.endswith("/lib/guard.py")), -1)
        return words[at + 1]


def entries_of(build):
    """All entries of ctest but those that look at the tree alone, and the simulator with SIM_SEEDS."""
    listing = subprocess.run(["ctest", "--test-dir", build.folder, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    entries = []
    for test in json.loads(listing.stdout)["tests"]:
        properties = {each["name"]: each["value"] for each in test["properties"]}
        if "command" in test and not test["name"].startswith("check_"):
            environment = tuple(tuple(word.split("=", 1)) for word in properties.get("ENVIRONMENT", []))
            entries.append(Entry(test["name"], tuple(test["command"]), environment, properties.get("WORKING_DIRECTORY", str(build.folder)),
                                 "quick" in properties.get("LABELS", [])))
    sample = next((entry for entry in entries if entry.name.startswith("sim.sample.")), None)
    if sample:
        entries = [entry for entry in entries if not entry.name.startswith("sim.sample.")]
        at = sample.command.index("--seeds") + 1
        entries.append(dataclasses.replace(sample, name="sim.seeds", command=(*sample.command[:at], SIM_SEEDS, *sample.command[at + 1:])))
    return entries


class Runner:
    """Runs one entry; what it writes stays in a folder that is emptied."""

    def __init__(self, build):
        self.home = build.folder.parent / "t"  # short: sockets are made in it
        self.output = build.folder / "output"
        self.output.mkdir(parents=True, exist_ok=True)
        self.number, self.lock = 0, threading.Lock()

    def environment(self, entry, folder, gcda):
        keep = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME") if name in os.environ}
        strangers = os.environ.get("MUSTER_STRANGERS", str(pathlib.Path.home() / ".cache" / "muster-strangers"))
        return keep | {"TMPDIR": str(folder), "HOME": str(folder), "MUSTER_STRANGERS": strangers, "GCOV_PREFIX": str(gcda),
                       "MUSTER_TEST_GRACE_S": "10"} | dict(entry.environment)

    def run(self, entry, timeout_s, stop, gcda=None):
        """(exit code, seconds); 124 after a timeout or over a limit; None: stopped."""
        with self.lock:
            self.number += 1
            folder = self.home / str(self.number)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        begin = time.monotonic()
        with open(self.output / f"{entry.name}.txt", "wb") as output:
            process = subprocess.Popen(entry.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=entry.folder,
                                       env=self.environment(entry, folder, gcda or folder / "gcda"), start_new_session=True, preexec_fn=limit)
            try:
                code = self.wait(process, begin + timeout_s, stop)
            finally:
                end_test(process)
                shutil.rmtree(folder, ignore_errors=True)
        return code, time.monotonic() - begin

    @staticmethod
    def wait(process, until, stop):
        look = time.monotonic() + LOOK_S
        nap = 0.002
        while True:
            try:
                return process.wait(nap)
            except subprocess.TimeoutExpired:
                nap = min(nap * 1.5, 0.05)
            now = time.monotonic()
            if stop.is_set():
                return None
            if now >= until:
                return 124
            if now >= look:
                look = now + LOOK_S
                if is_beyond_limits(process.pid):
                    return 124


def limit():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_MAX_BYTES, FILE_MAX_BYTES))
    guard.set_process_option(guard.PR_SET_PDEATHSIG, signal.SIGTERM)


def is_beyond_limits(pid):
    total, pids = 0, guard.children_of(pid)
    for each in pids:
        try:
            with open(f"/proc/{each}/statm", encoding="ascii") as file:
                total += int(file.read().split()[1]) * (resource.getpagesize() >> 10)
        except OSError:
            continue  # it has ended meanwhile
    return total > MEMORY_MAX_KIB or len(pids) > PROCESSES_MAX


def end_test(process):
    """The guard ends what the test has started; one that does not is killed, which its second guard notices."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                pass


def run_all(jobs, work, items, stop):
    """work(item) for all items, `jobs` at a time, in their order, until stop is set; an exception in one ends all."""
    items = iter(items)
    lock, faults = threading.Lock(), []

    def pull():
        while not stop.is_set():
            with lock:
                item = next(items, None)
            if item is None:
                return
            try:
                work(item)
            except BaseException as fault:  # pylint: disable=broad-except
                faults.append(fault)
                stop.set()

    threads = [threading.Thread(target=pull) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        stop.set()
        for thread in threads:
            thread.join()
        raise
    if faults:
        raise faults[0]


def note(text):
    print(f"mutate: {text}", file=sys.stderr, flush=True)
