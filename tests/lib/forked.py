"""Python programs in forks of a test that has imported for all of them what takes seconds. Each is a process of its own, with a pid."""
import atexit
import os
import runpy
import select
import signal
import subprocess
import sys
import threading


class Process:
    """A fork that runs `script` as an interpreter would: with these words, additional variables, and descriptors as its streams."""

    def __init__(self, script, words, environment, streams):
        self.returncode = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _run(script, list(map(str, words)), environment, streams)

    def wait(self, timeout):
        if self.returncode is None:
            end = os.pidfd_open(self.pid)
            try:
                if not select.select([end], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout)
            finally:
                os.close(end)
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def send_signal(self, number):
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _run(script, words, environment, streams):
    code = 1
    try:
        _take_streams(streams)
        os.environ.update(environment)
        sys.argv, sys.path[0] = [script, *words], os.path.dirname(script)
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        _end(code)


def _take_streams(streams):
    """The others are the test's, which must be the only one that has them: the end of a pipe is heard when its last writer closes."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 65536)


def _end(code):
    """What an interpreter does at its end."""
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
