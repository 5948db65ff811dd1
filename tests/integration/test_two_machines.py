#!/usr/bin/env python3
"""The lines for two machines on the pages, word for word, on two hosts (namespaces) that have the pages' addresses."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["MUSTER_SOURCE_DIR"], "tests", "lib"))
import guard

guard.enter()
import needs
from puppets import BINARIES, CLEAN, PATIENCE_S
from two_hosts import two_hosts, why_not

SOURCE = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
PAGES = ("README.md", "docs/registry.md", "docs/tls.md", "docs/resolvers.md")
MACHINES = ("10.0.0.1", "10.0.0.2")
ENDED = "the lines have ended"
MACHINE = re.compile(r"^# on (10\.0\.0\.\d)$", re.M)


def listings(page):
    """Those for two machines: the lines for both, and those of each."""
    for block in re.findall(r"^```sh\n(.*?)^```$", (SOURCE / page).read_text(encoding="utf-8"), re.M | re.S):
        parts = MACHINE.split(block)
        if len(parts) > 1:
            yield parts[0], dict(zip(parts[1::2], parts[2::2]))


class TwoMachines(unittest.TestCase):
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.where = where.name
        os.symlink(BINARIES, os.path.join(self.where, "build"))
        self.hosts = two_hosts(self.addCleanup, network="10.0.0")

    def start(self, host, lines):
        """A shell that stays open behind the lines, as a person's does; so what they leave in the background goes on."""
        shell = subprocess.Popen([*host.inside, "bash", "-euc", f"{lines}\necho {ENDED}; read -r _ || true"], cwd=self.where,
                                 env=CLEAN, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(shell.wait)
        self.addCleanup(self.close, shell, host)
        return shell

    def close(self, shell, host):
        shell.stdin.close()
        shell.stdout.close()
        for pid in subprocess.run(["ip", "netns", "pids", host.name], text=True, capture_output=True).stdout.split():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(int(pid), signal.SIGKILL)

    def listen_to(self, shell):
        text = ""
        for line in shell.stdout:
            if line == f"{ENDED}\n":
                return text
            text += line
        return self.fail(f"a line has failed with {shell.wait()}: {text}")

    def run_listing(self, before, of):
        self.assertEqual(tuple(sorted(of)), MACHINES)
        subprocess.run(["bash", "-euc", before], cwd=self.where, env=CLEAN, check=True)
        shells = [self.start(host, of[host.address]) for host in self.hosts]
        texts = [self.listen_to(shell) for shell in shells]
        for shell, host in zip(shells, self.hosts):
            self.close(shell, host)
            shell.wait(timeout=PATIENCE_S)
        for text in texts:
            self.assertRegex(text, r"\[muster\] view 1 with 4 members\n")
            self.assertIn("weights byte-identical on 2 workers of this machine (4 in the job)", text)
            self.assertIn("2 of 2 tasks of this machine took part, in a job of up to 4 members", text)
            self.assertNotIn("too late", text)
        self.assertIn("weights byte-identical on 2 machines", "".join(texts))
        self.assertEqual(len(set(re.findall(r"worker:\d ([0-9a-f]{16})", "".join(texts)))), 1, texts)
        self.assertEqual("".join(texts).count("total 4000"), 1, texts)

    def test_lines_of_every_page(self):
        for page in PAGES:
            found = list(listings(page))
            self.assertEqual(len(found), 1, page)
            with self.subTest(page=page):
                print(page)
                self.run_listing(*found[0])

    def test_no_other_variable_is_named(self):
        """What a page tells to type is all that is needed: no MUSTER_ variable stands in the lines."""
        for page in PAGES:
            for before, of in listings(page):
                self.assertNotIn("MUSTER_", before + "".join(of.values()), page)


if __name__ == "__main__":
    if WHY := why_not():
        needs.skip(WHY)
    if not shutil.which("openssl"):
        needs.tool("openssl", "openssl")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of the cleanups
    unittest.main()
