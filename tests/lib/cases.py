"""Cases of unittest as the scripts run them: none passes without an assertion, and one that is skipped says why."""
import concurrent.futures
import functools
import subprocess
import sys
import unittest

AT_ONCE = 4
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


def watch():
    """From now on; guard.enter() calls it."""
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


def run_alone(name):
    return name, subprocess.run([sys.executable, sys.argv[0], name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                encoding="utf-8", errors="replace", check=False)


def main():
    """Runs all cases, or those of the classes that the command line names, AT_ONCE at a time and each in a process of its own: for scripts whose cases
    mostly wait for leases and deaths, and share neither ports nor names. Anything else on the command line is for unittest."""
    words = sys.argv[1:]
    if any("." in word or word.startswith("-") for word in words):
        return unittest.main()
    loader, script, failed = unittest.TestLoader(), sys.modules["__main__"], []
    names = list(names_of(loader.loadTestsFromNames(words, script) if words else loader.loadTestsFromModule(script)))
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
        for each in concurrent.futures.as_completed([threads.submit(run_alone, name) for name in names]):
            name, done = each.result()
            print(done.stdout, end="", flush=True)
            if done.returncode != 0:
                failed.append(name)
    print(f"{len(names)} cases, {len(failed)} failed" + "".join(f"\n  {name}" for name in failed), flush=True)
    return sys.exit(0 if names and not failed else 1)
