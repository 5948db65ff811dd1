"""Cases of unittest as the scripts run them: none passes without an assertion, and one that is skipped says why."""
import functools
import os
import signal
import sys
import tempfile
import traceback
import unittest

import guard

AT_ONCE = 4
ERRORS = os.dup(2)
count = 0


def note_assertion():
    """For a check that raises AssertionError by itself."""
    global count
    count += 1


def counted(method):
    @functools.wraps(method)
    def call(*args, **named):
        note_assertion()
        return method(*args, **named)
    return call


def show_stack(_, frame):
    os.write(ERRORS, f"cases: after {guard.HANG_S:g} s the script stands here:\n{''.join(traceback.format_stack(frame))}".encode())


def tell_hang():
    """What still runs after guard.HANG_S says where it stands; ctest's TIMEOUT, which ends it, shows nothing. By a signal, which waits for
    the interpreter: a thread of faulthandler reads the frames while they change, and may crash."""
    signal.setitimer(signal.ITIMER_REAL, guard.HANG_S)


def watch():
    """From now on; guard.enter() calls it."""
    signal.signal(signal.SIGALRM, show_stack)
    tell_hang()
    os.register_at_fork(after_in_child=tell_hang)
    for name in [name for name in dir(unittest.TestCase) if name.startswith("assert")]:
        setattr(unittest.TestCase, name, counted(getattr(unittest.TestCase, name)))
    run, skip = unittest.TestCase._callTestMethod, unittest.TextTestResult.addSkip

    def run_case(case, method):
        before = count
        run(case, method)
        if count == before:
            raise AssertionError(f"{case.id()} passes without an assertion")

    def tell_skip(result, case, reason):
        print(f"skipped: {case.id().removeprefix('__main__.')}: {reason}", flush=True)
        skip(result, case, reason)
    unittest.TestCase._callTestMethod, unittest.TextTestResult.addSkip = run_case, tell_skip


def names_of(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from names_of(each)
        else:
            yield each.id().removeprefix("__main__.")


def start_case(name, output):
    """The pid of a fork that runs this case as if the command line had named it; all is imported already. It ends as the script would."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid != 0:
        return pid
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    sys.argv[1:] = [name]
    return unittest.main()


def end_case(running):
    """Prints what the next case to end has said; its name, and whether it failed."""
    pid, status = os.wait()
    name, output = running.pop(pid)
    with output:
        output.seek(0)
        print(output.read().decode("utf-8", "replace"), end="", flush=True)
    return name, status != 0


def main():
    """Runs all cases, or those of the classes that the command line names, AT_ONCE at a time and each in a process of its own: for scripts whose cases
    mostly wait for leases and deaths, and share neither ports nor names. Anything else on the command line is for unittest."""
    words = sys.argv[1:]
    if any("." in word or word.startswith("-") for word in words):
        return unittest.main()
    loader, script, running, ended = unittest.TestLoader(), sys.modules["__main__"], {}, []
    names = list(names_of(loader.loadTestsFromNames(words, script) if words else loader.loadTestsFromModule(script)))
    for name in names:
        if len(running) == AT_ONCE:
            ended.append(end_case(running))
        output = tempfile.TemporaryFile()
        running[start_case(name, output)] = name, output
    while running:
        ended.append(end_case(running))
    failed = [name for name, has_failed in ended if has_failed]
    print(f"{len(names)} cases, {len(failed)} failed" + "".join(f"\n  {name}" for name in failed), flush=True)
    return sys.exit(0 if names and not failed else 1)
