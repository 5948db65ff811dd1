"""Jobs whose workers fork from one process that has imported what takes seconds: it serves all tests of a file.

`muster run --preload` imports anew for each job. Here a server, which has imported the modules, forks for each job twice: one
fork becomes the launcher, and its child waits to be that launcher's process of muster._preload. The launcher starts, as the
interpreter, a script that hands the descriptors of that process over. Programs without a launcher are forks, too.

usage: warm.py SOCKET_FD MODULE,…
"""
import ctypes
import fcntl
import importlib
import json
import os
import signal
import socket
import subprocess
import sys

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CONTROL_FD, FLOOR = 6, 20  # of muster._preload; above what a worker has by number
# In place of the interpreter. It is there as long as the launcher and the other process are.
INTERPRETER = """#!{python} -IS
import select, socket, sys
other = socket.socket(socket.AF_UNIX)
other.connect({name!r})
socket.send_fds(other, ["\\0".join(sys.argv[1:]).encode()], [1, 2, {control}])
poll = select.poll()
poll.register(other, select.POLLHUP)
poll.register({control}, 0)
poll.poll()
"""
libc = ctypes.CDLL(None)


class Server:
    """Of the modules; to be closed."""

    def __init__(self, modules):
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)  # for the forks of the server
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._child = subprocess.Popen([sys.executable, "-u", __file__, str(theirs.fileno()), modules], pass_fds=[theirs.fileno()])
        self._count = 0
        theirs.close()

    def start(self, command, cwd, env, out, err):
        """A child of this process, like subprocess.Popen, which runs the command, or a text of Python."""
        name = "" if isinstance(command, str) else f"\0muster-warm-{os.getpid()}-{self._count}"
        self._count += 1
        if name:
            interpreter = cwd / "python3"
            interpreter.write_text(INTERPRETER.format(python=sys.executable, name=name, control=CONTROL_FD), encoding="utf-8")
            interpreter.chmod(0o755)
            command = [str(interpreter) if each == sys.executable else str(each) for each in command]
        with open(cwd / "request", "w+", encoding="utf-8") as request:
            json.dump([command, str(cwd), dict(env), name], request)
            request.flush()
            socket.send_fds(self._socket, [b"start"], [request.fileno(), out.fileno(), err.fileno()])
        pid = self._socket.recv(16)
        assert pid, "the process that imports for all has ended: its output says why"
        return _Child(int(pid), command)

    def close(self):
        self._socket.close()
        self._child.wait()


class _Child(subprocess.Popen):
    """One that the server has forked."""

    def __init__(self, pid, command):
        self._forked = pid
        super().__init__(command)

    def _execute_child(self, *_):
        self.pid, self._child_created = self._forked, True


# --- the server ---

def _be_child(pid_of_parent):
    """Ends with its parent."""
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != pid_of_parent:
        os._exit(1)


def _give_descriptors(*pairs):
    high = [(fcntl.fcntl(fd, fcntl.F_DUPFD, FLOOR), number) for fd, number in pairs]
    for fd, number in high:
        os.dup2(fd, number)
        os.close(fd)


def _be_preload(listener, launcher):
    """Until it is a worker, which returns."""
    from muster import _preload
    _be_child(launcher)
    other, _ = listener.accept()
    words, fds, _, _ = socket.recv_fds(other, 65536, 3)
    words = words.decode().split("\0")  # … -m muster._preload MODULES KIND TARGET ARGUMENTS
    null = os.open("/dev/null", os.O_RDWR)
    _give_descriptors((other.fileno(), FLOOR - 1), (null, 0), *zip(fds, (1, 2, CONTROL_FD)), *((null, number) for number in (3, 4, 5)))
    for fd in (*fds, null, other.detach(), listener.detach()):
        if fd > CONTROL_FD:
            os.close(fd)
    held = [FLOOR - 1]
    os.register_at_fork(after_in_child=lambda: held and os.close(held.pop()))
    _preload.LAUNCHER = launcher
    sys.argv = words[words.index("muster._preload"):]
    _preload.main()


def _be_job(command, name):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen()
    launcher = os.getpid()
    if os.fork() == 0:
        _be_preload(listener, launcher)
        return
    os.execvpe(command[0], command, os.environ)


def _serve(control):
    """Returns in each fork whose program has ended, or ends there."""
    from muster import _preload
    while True:
        message, fds, _, _ = socket.recv_fds(control, 16, 3)
        if not message:
            os._exit(0)
        if _preload._fork_twice():
            break
        for fd in fds:
            os.close(fd)
    control.send(str(os.getpid()).encode())
    control.close()
    request, *output = fds
    command, cwd, env, name = json.loads(os.pread(request, os.fstat(request).st_size, 0))
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    null = os.open("/dev/null", os.O_RDONLY)
    _give_descriptors((null, 0), *zip(output, (1, 2)))
    for fd in (null, *fds):
        if fd > 2:
            os.close(fd)
    if name:
        _be_job(command, name)
    else:
        sys.argv, sys.path[0] = ["-c"], ""
        _preload._run("code", command)


def main():
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2].split(","):
        importlib.import_module(name)
    _serve(control)


if __name__ == "__main__":
    main()
