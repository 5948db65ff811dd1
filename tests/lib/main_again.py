"""One process that runs the main of a program again and again, for tests of many command lines (main_again.c). Each run has its own arguments and
variables; standard input is empty. A leak is found when the process ends."""
import os
import socket
import subprocess
import tempfile
import threading

LIBRARY = os.path.join(os.environ["MUSTER_BINARY_DIR"], "lib", "libmuster_main_again.so")


class MainAgain:
    def __init__(self, program, patience_s):
        self.program, self.patience_s = program, patience_s
        self.process = None

    def start(self):
        self.socket, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(self.patience_s)
        self.outputs = [tempfile.TemporaryFile("w+", encoding="utf-8") for _ in range(2)]
        options = ":".join(filter(None, (os.environ.get("ASAN_OPTIONS"), "verify_asan_link_order=0")))
        self.process = subprocess.Popen([self.program, str(end.fileno())], stdin=subprocess.DEVNULL, stdout=self.outputs[0], stderr=self.outputs[1],
                                        pass_fds=[end.fileno()], env=dict(os.environ, LD_PRELOAD=LIBRARY, ASAN_OPTIONS=options))
        end.close()

    def take_outputs(self):
        texts = []
        for file in self.outputs:
            file.seek(0)
            texts.append(file.read())
            file.seek(0)  # the process writes at the same place
            file.truncate()
        return texts

    def run(self, args, variables):
        """As subprocess.run does. A run that takes the process with it gives that exit code, and the next one starts a new process."""
        if self.process is None:
            self.start()
        words = [self.program, *args, "\n", *(f"{name}={value}" for name, value in variables.items())]
        self.socket.send("".join(word + "\0" for word in words).encode())
        try:
            answer = self.socket.recv(1)
        except TimeoutError:
            self.end(kill=True)
            raise subprocess.TimeoutExpired(args, self.patience_s) from None
        if not answer:
            return self.end()
        return subprocess.CompletedProcess(args, answer[0], *self.take_outputs())

    def end(self, kill=False):
        """How the process ended, and what it said last: (0, "", "") unless it lost memory."""
        if self.process is None:
            return subprocess.CompletedProcess([], 0, "", "")
        if kill:
            self.process.kill()
        self.socket.close()
        done = subprocess.CompletedProcess(self.process.args, self.process.wait(timeout=self.patience_s), *self.take_outputs())
        for file in self.outputs:
            file.close()
        self.process = None
        return done


class SideBySide:
    """The same for runs that overlap: as many processes as there are runs at a time."""

    def __init__(self, program, patience_s):
        self.program, self.patience_s = program, patience_s
        self.lock, self.idle = threading.Lock(), []

    def run(self, args, variables):
        with self.lock:
            again = self.idle.pop() if self.idle else MainAgain(self.program, self.patience_s)
        try:
            return again.run(args, variables)
        finally:
            with self.lock:
                self.idle.append(again)

    def end(self):
        """What the processes said that did not end well."""
        ends = [again.end() for again in self.idle]
        self.idle = []
        return [done for done in ends if (done.returncode, done.stdout, done.stderr) != (0, "", "")]
