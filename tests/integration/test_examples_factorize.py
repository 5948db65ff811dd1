#!/usr/bin/env python3
"""examples/factorize: four workers train on three servers with two copies of each row. A server that is killed three times does not keep them from
learning; by round it does not change a bit. The commands of docs/params.md are run as the page shows them."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

from params_cluster import BINARIES, SOURCE, ParamsCluster, children_of

PATIENCE_S = 240
WORKERS, SERVERS, KILLS = 4, 3, 3
WAKE_UPS = 50  # of a server between a report and its death
# Workers that are not in step end at another quality in each run, and lower where many programs share the processors, whether servers are
# killed or not: of 30 runs of 7 passes, 5 at a time on 2 processors, the 15 without kills ended from 0.740 to 0.750 and those with three kills
# each from 0.743 to 0.749; a busier machine gave 0.738.
AUC_MIN = 0.72  # by chance: 0.5


def wake_ups(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)$", file.read(), re.M)[1])


class Job:
    """A registry, servers and workers, all ended by the case's clean-up."""

    def __init__(self, case):
        self.case = case
        self.folder = tempfile.TemporaryDirectory()
        case.addCleanup(self.folder.cleanup)
        registry = case.start_registry()
        self.keepers = [self.start("muster", "params", "serve", "--listen", "127.0.0.1:0", "--registry", registry, "--job", "words", "--replicas", "2",
                                   "--expect", str(SERVERS), "--memory-max", "128M", log=f"server{i}") for i in range(SERVERS)]
        self.servers = ",".join(keeper.stdout.readline().split()[1] for keeper in self.keepers)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def start(self, program, *words, log="log"):
        with open(self.path(log), "a", encoding="utf-8") as file:
            process = subprocess.Popen([os.path.join(BINARIES, program), *words], stdout=subprocess.PIPE, stderr=file, text=True)
        self.case.addCleanup(process.communicate)
        self.case.addCleanup(process.kill)
        return process

    def work(self, *words):
        data = os.path.join(SOURCE, "examples", "data", "wordnet-glosses.txt")
        return [self.start("factorize", "--server", self.servers, "--job", "words", "--data", data, "--worker", str(i), *words, log=f"worker{i}")
                for i in range(WORKERS)]

    def kill_server(self, keeper):
        """While it works: some messages after the report, when all workers push again."""
        victim = children_of(keeper.pid)[0]
        before = wake_ups(victim)
        until = time.monotonic() + PATIENCE_S
        while wake_ups(victim) < before + WAKE_UPS:
            self.case.assertLess(time.monotonic(), until, "the server gets no messages")
        self.case.kill_server(keeper)


class Factorize(ParamsCluster):
    def train(self, *words, kills=0):
        """[(auc, digest) of each pass]"""
        job = Job(self)
        self.wait_for_copies(job.path("server0"))
        deaths = 0
        workers = job.work(*words)
        reports = []
        for line in workers[0].stdout:
            reports.append(re.fullmatch(r"pass \d+ auc (0\.\d+) digest ([0-9a-f]{16})\n", line).groups())
            if deaths < kills:
                self.assertIsNone(workers[1].poll(), "the training was over before the last kill")
                maps = self.maps_of(job.path("server0"))
                job.kill_server(job.keepers[1])
                deaths += 1
                self.wait_for_copies(job.path("server0"), maps)
        for i, worker in enumerate(workers):
            worker.wait(timeout=PATIENCE_S)
            with open(job.path(f"worker{i}"), encoding="utf-8") as file:
                self.assertEqual((worker.returncode, file.read()), (0, ""))
        self.assertEqual((kills - deaths, [keeper.poll() for keeper in job.keepers]), (0, [None] * SERVERS))
        return [(float(auc), digest) for auc, digest in reports]

    def test_with_a_server_killed_three_times_the_workers_still_learn(self):
        killed = self.train("--passes", "7", kills=KILLS)

        self.assertEqual(len(killed), 7)
        self.assertGreater(killed[-1][0], AUC_MIN)

    def test_by_round_a_server_killed_three_times_does_not_change_a_bit(self):
        calm = self.train("--passes", "4", "--by-round")
        killed = self.train("--passes", "4", "--by-round", kills=KILLS)

        self.assertEqual(len(calm), 4)
        self.assertEqual(killed, calm)

    def test_the_commands_of_the_page_work(self):
        with open(os.path.join(SOURCE, "docs", "params.md"), encoding="utf-8") as file:
            section = file.read().split("\n## A training run whose servers are killed\n")[1].split("\n## ")[0]
        lines = re.search(r"^    (build/bin/muster registry .*?)\n\n", section, re.M | re.S)[1].split("\n    ")
        registry, servers, workers, kill = lines[0], "\n".join(lines[1:-2]), lines[-2], lines[-1]
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "build"))
            os.symlink(os.path.join(BINARIES), os.path.join(folder, "build", "bin"))
            os.symlink(os.path.join(SOURCE, "examples"), os.path.join(folder, "examples"))
            shell = subprocess.Popen(["bash"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                     start_new_session=True)
            self.addCleanup(shell.communicate)
            self.addCleanup(os.killpg, shell.pid, signal.SIGKILL)

            def say(line):
                shell.stdin.write(line + "\n")
                shell.stdin.flush()

            say(registry.replace("127.0.0.1:7400", "127.0.0.1:0"))
            address = shell.stdout.readline().split()[1]
            say(servers.replace("127.0.0.1:7400", address).replace("127.0.0.1:$port", "127.0.0.1:0"))
            server = [shell.stdout.readline().split()[1] for _ in range(SERVERS)][0]
            say(workers.replace("--worker", f"--passes 3 --server {server} --worker"))
            first = shell.stdout.readline()
            say(kill)
            rest = [shell.stdout.readline() for _ in range(2)]
        for i, line in enumerate([first, *rest]):
            self.assertRegex(line, rf"^pass {i + 1} auc 0\.\d+ digest [0-9a-f]{{16}}\n")

    def test_the_data_has_the_notice(self):
        with open(os.path.join(SOURCE, "examples", "data", "wordnet-glosses.txt"), encoding="ascii") as file:
            text = " ".join(line[1:].strip() for line in file if line.startswith("#"))
        self.assertIn("WordNet 3.0 Copyright 2006 by Princeton University. All rights reserved.", re.sub(r"\s+", " ", text))
        self.assertIn("Permission to use, copy, modify and distribute this software and database", re.sub(r"\s+", " ", text))


if __name__ == "__main__":
    unittest.main()
