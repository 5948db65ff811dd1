#!/usr/bin/env python3
"""A worker of `muster run -n 1` has the launcher's terminal: pdb and gdb read keys, Ctrl-C and Ctrl-Z reach the worker."""
import os
import pty
import re
import select
import shutil
import signal
import sys
import termios
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()

MUSTER = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin", "muster")
CLEAN = {k: v for k, v in os.environ.items()
         if not re.match(r"MUSTER_(?!BINARY_DIR|SOURCE_DIR|TEST_GUARD)|TF_CONFIG|RANK$|WORLD_SIZE", k)}
LOOP = "import time\nprint('loop' + 'ing', flush=True)\nwhile True: time.sleep(0.05)\n"


class Terminal:
    """A program that leads a session of its own, on a terminal of its own."""

    def __init__(self, case, *words):
        self.case, self.seen = case, ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(words[0], list(words), dict(CLEAN, TERM="dumb", PS1="prompt> "))
        case.addCleanup(self.discard)

    def discard(self):
        os.close(self.fd)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def hear(self, words, seconds=60):
        """Read until these words have come behind the last ones."""
        end = time.monotonic() + seconds
        while words not in self.seen:
            if select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                try:
                    self.seen += os.read(self.fd, 4096).decode(errors="replace")
                    continue
                except OSError:
                    pass
            self.case.fail(f"{words!r} did not come in {self.seen!r}")
        heard, self.seen = self.seen.split(words, 1)
        return heard

    def say(self, keys):
        os.write(self.fd, keys.encode())

    def end(self):
        """The exit code, as a shell has it."""
        while True:
            try:
                if not os.read(self.fd, 4096):
                    break
            except OSError:
                break
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


class OneWorker(unittest.TestCase):
    def test_pdb_reads_commands(self):
        terminal = Terminal(self, MUSTER, "run", "-n", "1", "--", sys.executable, "-c", "import pdb\nx = 6\npdb.set_trace()\nprint('end', x)\n")
        terminal.hear("(Pdb)")
        terminal.say("p x * 7\n")
        terminal.hear("42")
        terminal.say("x = 8\n")
        terminal.hear("(Pdb)")
        terminal.say("c\n")
        terminal.hear("end 8")
        self.assertEqual(terminal.end(), 0)

    def test_the_modes_of_a_program_that_is_killed_do_not_stay(self):
        terminal = Terminal(self, MUSTER, "run", "-n", "1", "--max-restarts", "0", "--", "sh", "-c", "stty -echo -icanon; echo set; read x; kill -9 $$")
        before = termios.tcgetattr(terminal.fd)
        terminal.hear("set")
        self.assertNotEqual(termios.tcgetattr(terminal.fd), before)
        terminal.say("\n")
        self.assertEqual(terminal.end(), 128 + signal.SIGKILL)
        self.assertEqual(termios.tcgetattr(terminal.fd), before)

    def test_ctrl_c_is_the_programs_to_handle(self):
        terminal = Terminal(self, MUSTER, "run", "-n", "1", "--", sys.executable, "-c",
                            f"try:\n{''.join('    ' + line + chr(10) for line in LOOP.splitlines())}except KeyboardInterrupt:\n    print('handled')\n")
        terminal.hear("looping")
        terminal.say("\x03")
        terminal.hear("handled")
        self.assertEqual(terminal.end(), 0)

    def test_ctrl_c_that_kills_the_program_ends_the_run(self):
        terminal = Terminal(self, MUSTER, "run", "-n", "1", "--", sys.executable, "-c", LOOP)
        terminal.hear("looping")
        terminal.say("\x03")
        self.assertEqual(terminal.end(), 130)

    def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_gives_it_back(self):
        terminal = Terminal(self, "bash", "--norc", "--noediting", "-i")
        terminal.hear("prompt> ")
        terminal.say(f"{MUSTER} run -n 1 -- {sys.executable} -c 'print(\"got\", input(\"as\" + \"k: \"))'\n")
        terminal.hear("ask: ")
        terminal.say("\x1a")
        terminal.hear("Stopped")
        terminal.hear("prompt> ")
        terminal.say("echo shell $((40 + 2))\n")
        terminal.hear("shell 42")
        terminal.say("fg\n")
        terminal.hear("run -n 1")
        terminal.say("hello\n")
        terminal.hear("got hello")
        terminal.hear("prompt> ")
        terminal.say("exit $?\n")
        self.assertEqual(terminal.end(), 0)

    @unittest.skipUnless(shutil.which("gdb"), "gdb is not installed")
    def test_gdb_runs_and_interrupts_a_program(self):
        terminal = Terminal(self, MUSTER, "run", "-n", "1", "--", "gdb", "-q", "-nx", "-ex", "set debuginfod enabled off",
                            "-ex", "set confirm off", "--args", os.path.realpath(sys.executable), "-c", LOOP)
        terminal.hear("(gdb)")
        terminal.say("run\n")
        terminal.hear("looping")
        terminal.say("\x03")
        terminal.hear("received signal SIGINT")
        terminal.hear("(gdb)")
        terminal.say("kill\n")
        terminal.hear("(gdb)")
        terminal.say("quit\n")
        self.assertEqual(terminal.end(), 0)


if __name__ == "__main__":
    unittest.main()
