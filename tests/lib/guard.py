#!/usr/bin/env python3
"""Runs one test and ends every process that the test has started, however the test ends. usage: guard.py COMMAND…

ctest runs every test through this program, and a script that is started by hand enters it by itself (guard.enter(), guard.sh).
The guard is the reaper of all descendants of the test: a process that outlives its parent, in whatever session or process group,
becomes the guard's child and is killed. Thus no process keeps ctest's pipe open after a skip, an exception or a SIGKILL. A second
guard below the first does the same when the first is killed. The exit code is that of the test, or 128 plus the signal that killed it.

A test that passed or was skipped must not leave processes behind: those that have not ended GRACE_S after it are named, and the test fails.
Of a test that runs for HANG_S all processes are shown: ctest's TIMEOUT, which ends it later, shows none.
"""
import ctypes
import os
import signal
import sys
import time

SKIPPED = 77
GRACE_S = float(os.environ.get("MUSTER_TEST_GRACE_S", 10))  # for processes that are ending
HANG_S = float(os.environ.get("MUSTER_TEST_HANG_S", 240))  # below every TIMEOUT of tests/CMakeLists.txt
NEVER_S = 1e6
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Ignored by what nohup starts, or a script with '&', and by all that they start: a test begins as from a terminal.
USUAL_SIGNALS = (*ENDING_SIGNALS, signal.SIGQUIT)
libc = ctypes.CDLL(None, use_errno=True)


def enter():
    """Start the running script anew below a guard, unless there is one. From then on its cases of unittest are watched (cases.py)."""
    if "TEST_GUARD" not in os.environ:
        os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), sys.executable, *sys.argv])
    if "unittest" in sys.modules:
        import cases
        cases.watch()


def set_process_option(option, value):
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def fork_with_parent(parent_death_signal):
    """os.fork, whose child gets this signal when its parent ends."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        set_process_option(PR_SET_PDEATHSIG, parent_death_signal)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)
    return pid


def children_of(root):
    """Pid and command of each living descendant."""
    parents, commands = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
            with open(f"/proc/{name}/cmdline", encoding="utf-8", errors="replace") as file:
                command = file.read().replace("\0", " ").strip()
        except OSError:
            continue  # it has ended meanwhile
        if state != "Z":
            parents[int(name)], commands[int(name)] = int(parent), command
    found = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return {pid: commands[pid] for pid in found if pid != root}
        found |= more


def reap_children(until):
    """True: no child is left. False: some are, at that time (monotonic)."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            if time.monotonic() >= until:
                return False
            signal.sigtimedwait({signal.SIGCHLD}, 0.05)


def kill_descendants():
    """Those that the killed ones leave to us, too."""
    while not reap_children(time.monotonic()):
        for pid in children_of(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap_children(time.monotonic() + 0.1)


def show_processes():
    """State, place in the kernel and command of each descendant."""
    print(f"guard: the test has run for {HANG_S:g} s, and has not ended:", flush=True)
    for pid, command in sorted(children_of(os.getpid()).items()):
        try:
            with open(f"/proc/{pid}/wchan", encoding="utf-8") as wchan, open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
                print(f"guard: process {pid}: {stat.read().rpartition(')')[2].split()[0]} {wchan.read()}: {command}", flush=True)
        except OSError:
            continue  # it has ended meanwhile


def wait_for(test, hang_s=NEVER_S):
    """The exit code of the test; orphans are reaped meanwhile. An ending signal is passed on to the test."""
    hangs_at = time.monotonic() + hang_s
    while True:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == test:
                return os.waitstatus_to_exitcode(status)
            if pid == 0:
                break
        got = signal.sigtimedwait({signal.SIGCHLD, *ENDING_SIGNALS}, max(hangs_at - time.monotonic(), 0))
        if got is None:
            show_processes()
            hangs_at += NEVER_S
        elif got.si_signo != signal.SIGCHLD:
            os.kill(test, signal.SIGTERM)


def code_after_cleaning(code):
    """Ends what the test has left; the exit code to give."""
    if code < 0:
        print(f"guard: the test died of {signal.Signals(-code).name}", flush=True)
        code = 128 - code
    if code in (0, SKIPPED) and not reap_children(time.monotonic() + GRACE_S):
        left = children_of(os.getpid())
        if left:
            when = "it was skipped, which must be decided before anything starts" if code == SKIPPED else "its end"
            print(f"guard: FAILED: processes of the test go on after {when}:", flush=True)
            for pid, command in sorted(left.items()):
                print(f"guard: process {pid}: {command}", flush=True)
            code = 1
    kill_descendants()
    return code


def run_below(command):
    """As reaper of all that `command` starts."""
    set_process_option(PR_SET_CHILD_SUBREAPER, 1)
    test = fork_with_parent(signal.SIGKILL)
    if test == 0:
        for number in USUAL_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.environ["TEST_GUARD"] = "1"
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"guard: {command[0]} cannot be run: {error.strerror}", flush=True)
            os._exit(127)
    return code_after_cleaning(wait_for(test))


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: guard.py COMMAND…")
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *ENDING_SIGNALS})
    set_process_option(PR_SET_CHILD_SUBREAPER, 1)
    second = fork_with_parent(signal.SIGTERM)
    if second == 0:
        os._exit(run_below(sys.argv[1:]))
    code = wait_for(second, HANG_S)
    kill_descendants()
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
