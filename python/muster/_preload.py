"""The process from which `muster run --preload MODULE,…` starts its workers: it has imported the modules, and forks.

`muster run` starts it as `python -m muster._preload MODULES KIND TARGET ARGUMENTS`, and asks it for each life of a
worker by a message on CONTROL_FD with descriptors (tools/run/task/preload.c): one end of a socket pair, a file with the
environment, standard output, standard error, the pipe of reports, and with TLS the certificates. The worker is forked
twice, so that it is a child of `muster run`, as if that had started it.
"""

import ctypes
import gc
import importlib
import importlib.machinery
import io
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import threading
import types
import zipfile

LAUNCHER = os.getppid()
REPORT_FD, CONTROL_FD = 3, 6  # 3 to 5 are held for what a worker gets there
DESCRIPTORS_MAX = 7
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _threads():
    return {int(task) for task in os.listdir("/proc/self/task")}


def _name_thread(task):
    for thread in threading.enumerate():
        if thread.native_id == task:
            return thread.name
    with open(f"/proc/self/task/{task}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()


def _import(modules, control):
    """Threads do not exist in a fork, and locks that they hold there are never released: the user hears of them."""
    for name in modules:
        before = _threads()
        try:
            importlib.import_module(name)
        except BaseException as error:  # SystemExit, too
            control.send(f"failed\0{name}\0{type(error).__name__}: {error}"[:900].encode())
            os._exit(1)
        if started := _threads() - before:
            names = ", ".join(sorted({_name_thread(task) for task in started}))
            control.send(f"threads\0{name}\0{len(started)} ({names})"[:900].encode())


def _first_path(kind, target):
    """The entry that the interpreter puts in front of sys.path for the program."""
    if kind == "script":
        return os.path.dirname(os.path.realpath(target))
    return os.getcwd() if kind == "module" else ""


def _await_exit(pidfd):
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll()
    os.close(pidfd)


def _fork_twice():
    """True in the grandchild, when its parent has ended: the launcher has it from then on."""
    child = os.fork()
    if child != 0:
        os.waitpid(child, 0)
        return False
    try:
        between = os.pidfd_open(os.getpid())
        if os.fork() != 0:
            os._exit(0)
        _await_exit(between)
        return True
    except BaseException:
        os._exit(1)


def _become_child(launcher_end):
    """As a worker is that the launcher has forked itself; it runs nothing before the launcher watches it."""
    os.setpgid(0, 0)
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != LAUNCHER:  # it died before the prctl
        os._exit(1)
    os.write(launcher_end, str(os.getpid()).encode())
    if not os.read(launcher_end, 1):
        os._exit(1)
    os.close(launcher_end)


def _take_environment(file):
    text = os.pread(file, os.fstat(file).st_size, 0)
    os.close(file)
    os.environ.clear()
    for entry in text.split(b"\0"):
        name, separator, value = entry.partition(b"=")
        if separator and name:
            os.environb[name] = value


def _take_descriptors(out, err, report, *certificates):
    for number, source in ((1, out), (2, err), (REPORT_FD, report), *enumerate(certificates, REPORT_FD + 1)):
        os.dup2(source, number)
        os.close(source)
    for number in range(REPORT_FD + 1 + len(certificates), CONTROL_FD):
        os.close(number)


def _reseed():
    """Workers that were started by themselves would have different states; random does it itself."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _serve(control):
    """Returns in each worker."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 16, DESCRIPTORS_MAX)
        if not message:
            os._exit(0)
        try:
            is_worker = _fork_twice()
        except OSError:
            is_worker = False  # the launcher sees the end of its socket
        if is_worker:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    try:
        control.close()
        launcher_end, environment, *others = descriptors
        _become_child(launcher_end)
        _take_environment(environment)
        _take_descriptors(*others)
        gc.unfreeze()
        _reseed()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def _read_code(path):
    with io.open_code(path) as file:
        if code := pkgutil.read_code(file):
            return code
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def _run_script(target):
    if os.path.isdir(target) or zipfile.is_zipfile(target):
        sys.path[0] = target
        runpy._run_module_as_main("__main__", False)
        return
    main, path = sys.modules["__main__"], os.path.abspath(target)
    main.__file__, main.__cached__ = path, None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    exec(_read_code(path), main.__dict__)


def _run_module(target):
    runpy._run_module_as_main(target)


def _run_code(target):
    exec(compile(target, "<string>", "exec", dont_inherit=True), sys.modules["__main__"].__dict__)


def _run(kind, target):
    """The program as `__main__`, as the interpreter runs it; a traceback begins with the program."""
    main = types.ModuleType("__main__")
    main.__builtins__ = sys.modules["builtins"]
    sys.modules["__main__"] = main
    try:
        {"script": _run_script, "module": _run_module, "code": _run_code}[kind](target)
    except Exception as error:
        trace = error.__traceback__
        while trace.tb_next and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        # By these what runs at the exit knows of the exception, as the interpreter leaves them.
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error.with_traceback(trace), trace
        sys.last_exc = sys.last_value
        sys.excepthook(type(error), sys.last_value, trace)
        sys.exit(1)


def main():
    modules, kind, target, *arguments = sys.argv[1:]
    control = socket.socket(fileno=CONTROL_FD)
    os.set_inheritable(CONTROL_FD, False)
    sys.argv = [{"script": target, "module": "-m", "code": "-c"}[kind], *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = _first_path(kind, target)
    _import(modules.split(","), control)
    sys.stdout.flush()
    gc.collect()
    gc.freeze()  # the collector would write to each page, and so copy it
    control.send(b"ready")
    _serve(control)
    _run(kind, target)


if __name__ == "__main__":
    main()
