"""Cases of unittest as the scripts run them: none passes without an assertion, and one that is skipped says why."""
import functools
import unittest

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
