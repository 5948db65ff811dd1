#!/usr/bin/env python3
"""Every option of every command of `muster` with every value that is none: exit code 2, the option's name, what would be
right, and nothing on standard output. The options are those that `muster help options` lists, so a new one is tried, too."""
# Entries of ctest: Values Variables Words
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

from main_again import MainAgain

MUSTER = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin", "muster")
PATIENCE_S = 120
CLEAN = {k: v for k, v in os.environ.items()
         if not k.startswith(("MUSTER_", "TF_CONFIG", "RANK", "WORLD_SIZE")) or k in ("MUSTER_BINARY_DIR", "MUSTER_SOURCE_DIR")}
HUGE = "9" * 30

# The arguments that a command needs to be called rightly, in front of the option and behind it.
RIGHT = {
    "run": ([], ["--", "true"]),
    "bench allreduce": (["-n", "1", "--bytes", "4", "--iters", "1"], []),
    "bench checkpoint": (["--folder", "/nonexistent/folder"], []),
    "bench join": (["--joins", "1"], []),
    "bench params": ([], []),
    "bench publish": ([], []),
    "bench recover": (["--kills", "1"], []),
    "bench scale": (["-n", "2", "--bytes", "4"], []),
    "bench tune": (["-n", "2", "--bytes", "4", "--iters", "1"], []),
    "checkpoint export": ([], ["/nonexistent/folder", "/nonexistent/file"]),
    "checkpoint import": ([], ["/nonexistent/file", "/nonexistent/folder"]),
    "checkpoint list": ([], ["/nonexistent/folder"]),
    "checkpoint show": ([], ["/nonexistent/folder"]),
    "checkpoint verify": ([], ["/nonexistent/folder"]),
    "coordinator": (["--listen", "127.0.0.1:0", "--tasks", "1"], []),
    "params cut": (["--server", "127.0.0.1:1"], ["/"]),
    "params drain": ([], ["127.0.0.1:1"]),
    "params inspect": (["--server", "127.0.0.1:1"], []),
    "params serve": (["--listen", "127.0.0.1:0"], []),
    "registry": (["--listen", "127.0.0.1:0"], []),
    "registry backup": (["--registry", "127.0.0.1:1"], []),
    "registry restore": (["--from", "/nonexistent/from"], []),
    "resolve": (["--resolver", "static:w=a:1"], []),
    "server": ([], []),
    "status": (["--registry", "127.0.0.1:1"], []),
    "top": (["--registry", "127.0.0.1:1", "--count", "1"], []),
    "trace": ([], ["/nonexistent/trace.jsonl"]),
    "version": ([], []),
}

# By what help calls the value.
ADDRESSES = ["", "nonsense", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1", "127.0.0.1:10x", "a b:1"]
LISTS = ["", ",", "x", "-1", "0", "10x", HUGE, "4,x"]
BAD = {
    "N": ["", "x", "-1", "10x", "1e3", " 5", HUGE],
    "SLOTS": ["", "x", "-1", "0", "65537", "10x", HUGE],
    "STEP": ["", "x", "-1", "10x", "1e3", " 5", HUGE],
    "X": ["", "x", "-1", "10x", "nan", "inf", " 5"],
    "SIZE": ["", "x", "-1", "10x", "1e3", "5 K", HUGE],
    "TIME": ["", "x", "-1", "10x", "1e3s", "5 s", HUGE],
    "A,B,…": LISTS,
    "MASK": ["", "x", "-1", "4", "3x", "0:4", "0:1,", HUGE],
    "N|auto|cpu|gpu": ["", "x", "-1", "0", "10x", HUGE],
    "MIN[:MAX]": ["", "x", "-1", "0", "2:1", "1:x", "1:2:3", HUGE],
    "HOST:PORT": ADDRESSES,
    "HOST:PORT,…|local": ADDRESSES,
    "HOST:PORT,…|embedded": ADDRESSES + ["127.0.0.1:1,,127.0.0.1:2", "ftp://127.0.0.1:1"],
    "TASK@step=S[,chunk=C]": ["", "0", "0@step=x", "0@step=-1", "0@step=1,chunk=x", "9@step=1", "0@step=1x", "ps:0@step=1"],
    "NAME": [""],
    "MODULE,…": ["", ",", "a,", "1x", "a b", "a-b", ".a", "a..b"],
    "TEXT": [""],
    "FILE": [""],
    "OUT.json": [""],
    "DIR": [""],
    "HOST": [""],
    "URL": ["", "nonsense", "127.0.0.1:1"],
    "ADDRESS": ["", "nonsense"],
    "URI": ["", "zoo:1", "nonsense"],
    "TYPE:COUNT,…": ["", "GPU", "GPU:", ":1", "gpu:1", "GPU:x", "GPU:-1", "CPU:1,", "GPU:65", HUGE],
    "JSON": ["", "{", "[]", '{"worker": 1}'],
}
FLAG = ["", "x", "2"]

REMEDY = re.compile(r"such as |is none of |from \d|at least |at most |more than |whole number|no number|not of the form|"
                    r"leave it out|is no |did you mean|unknown option|write |must |there is no |there are ")


def options(lines):
    """(command, flag, what help calls its value, the variable) of each option."""
    command = None
    found = []
    for line in lines:
        if line.startswith("muster "):
            command = line[len("muster "):]
        elif match := re.match(r"  (?:-\w, )?(--[\w-]+)(?: (\S+))? +(\S+) +\S+ +\S", line):
            flag, value, variable = match.groups()
            found.append((command, flag, value, None if variable == "-" else variable))
    return found


class Options(unittest.TestCase):
    """One process plays all command lines of a case."""
    def setUp(self):
        self.process = MainAgain(MUSTER, PATIENCE_S)
        self.addCleanup(self.end)

    def end(self):
        done = self.process.end()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""), done.stderr)

    def muster(self, *args, **variables):
        return self.process.run(args, dict(CLEAN, **variables))

    def options(self):
        return options(self.muster("help", "options").stdout.splitlines())

    def refused(self, args, *names, **variables):
        with self.subTest(args=args, **variables):
            done = self.muster(*args, **variables)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            for name in names:
                self.assertIn(name, done.stderr)
            self.assertRegex(done.stderr, REMEDY)

    def with_option(self, command, *option):
        before, behind = RIGHT[command]
        return [*command.split(), *before, *option, *behind]


class Values(Options):
    def test_every_command_is_in_the_table(self):
        self.assertEqual({command for command, *_ in self.options()}, set(RIGHT))
        self.assertGreater(len(self.options()), 100)

    def test_a_bad_value(self):
        for command, flag, value, _ in self.options():
            if value is None:
                bad = FLAG
            elif value in BAD:
                bad = BAD[value]
            else:
                bad = ["", "x", value.split("|")[0] + "x", value]  # one of several words
            for text in bad:
                self.refused(self.with_option(command, f"{flag}={text}"), flag)


class Variables(Options):
    def test_a_bad_variable(self):
        for command, flag, value, variable in self.options():
            if variable is None:
                continue
            before, behind = RIGHT[command]
            if flag in before:
                before = [word for word in before if word != flag and before[before.index(word) - 1] != flag]
            for text in BAD.get(value, ["x"]):
                if text:  # an empty variable is none
                    self.refused([*command.split(), *before, *behind], variable, **{variable: text})


class Words(Options):
    def test_a_missing_value(self):
        for command, flag, value, _ in self.options():
            if value is None or value == "MASK":  # --tee alone is --tee=3
                continue
            before, _ = RIGHT[command]
            for rest in ([], ["--"], ["--help"], ["--", "true"]):
                self.refused([*command.split(), *before, flag, *rest], flag, "must have a value, got none")

    def test_an_unknown_option(self):
        for command in RIGHT:
            for flag in ("--no-such-option", "-X"):
                self.refused(self.with_option(command, flag), flag)

    def test_an_argument_that_nobody_asked_for(self):
        for command in RIGHT:
            if command not in ("run", "trace", "params cut", "params drain", "params inspect"):  # any number of words
                done = self.muster(*self.with_option(command, "stray"))
                counts = command.startswith("checkpoint")  # so many words
                self.assertEqual((done.returncode, done.stdout), (2, ""), command)
                self.assertIn("must be given, got " if counts else "must hold options only, got the argument 'stray'", done.stderr)

    def test_the_last_of_two_counts(self):
        """As in torchrun: who wraps the command may put an option behind those of the wrapper."""
        done = self.muster("bench", "scale", "-n", "x", "-n", "2", "--bytes", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.muster("bench", "scale", "-n", "2", "-n", "x", "--bytes", "4")
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
