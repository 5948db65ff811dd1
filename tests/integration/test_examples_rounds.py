#!/usr/bin/env python3
"""examples/rounds: training in rounds ends with the same bytes whenever servers die; a learner that is paused holds nobody up."""
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import guard

guard.enter()

from params_cluster import PATIENCE_S, ParamsCluster

ROUNDS = os.path.join(os.environ["MUSTER_BINARY_DIR"], "bin", "rounds")
DATA = os.path.join(os.environ["MUSTER_SOURCE_DIR"], "examples", "data", "digits.csv")
LEARNERS = 4
KILLS = int(os.environ.get("MUSTER_ROUNDS_KILLS", "6"))


class Rounds(ParamsCluster):
    memory = "128M"

    def cluster(self):
        """Keepers to kill, an address, options for learners, and what to wait for behind a kill."""
        _, address, log = self.logged_server("--replicas", "2", "--expect", "3")
        keepers, _ = self.servers(2, "--replicas", "2", "--expect", "3")
        self.wait_for_copies(log)
        return keepers, address, ("--job", "j"), log

    def alone(self):
        keeper, address = self.serve("--log-level", "error")
        return [keeper], address, (), None

    def learners(self, address, *words):
        return [self.start(ROUNDS, address, "--learner", str(i), "--learners", str(LEARNERS), "--data", DATA, *words) for i in range(LEARNERS)]

    def end_of(self, learner):
        out, err = learner.stdout.read(), learner.stderr.read()  # communicate() would miss what a readline() has read ahead
        self.assertEqual((learner.wait(PATIENCE_S), err), (0, ""), out)
        return out.splitlines()

    def weights_of(self, learners):
        ends = {self.end_of(learner)[-1] for learner in learners}
        self.assertEqual(len(ends), 1, ends)
        return ends.pop()

    def run_with_kills(self, servers, rounds):
        """Learner 0 says when a round is done: then a server dies, each in turn."""
        keepers, address, words, log = servers
        learners = self.learners(address, "--rounds", str(rounds), "--steps", "50", *words)
        for kill in range(KILLS):
            for _ in range(max(1, rounds // (KILLS + 1))):
                line = learners[0].stdout.readline()
                self.assertRegex(line, r"^round \d+$", line or [learner.communicate(timeout=PATIENCE_S)[1] for learner in learners])
            maps = self.maps_of(log) if log else None
            self.kill_server(keepers[kill % len(keepers)])
            if log:
                self.wait_for_copies(log, maps)
        return self.weights_of(learners)

    def test_the_weights_are_the_same_bytes_whenever_servers_die(self):
        rounds = 10 * (KILLS + 1)
        expected = self.weights_of(self.learners(self.alone()[1], "--rounds", str(rounds), "--steps", "50"))
        self.assertRegex(expected, r"^accuracy 0\.9\d+ weights [0-9a-f]{16}$")
        for servers in (self.alone, self.cluster):
            with self.subTest(servers=servers.__name__):
                self.assertEqual(self.run_with_kills(servers(), rounds), expected)

    def pause(self, *more):
        """Learner 3 is paused until the others have ended. Returns their last line, and what it has printed since."""
        _, address, words, _ = self.cluster()
        learners = self.learners(address, "--rounds", "12", "--quorum", "3", *words, *more)
        self.assertEqual(learners[3].stdout.readline(), "round 0\n")
        learners[3].send_signal(signal.SIGSTOP)
        try:
            others = self.weights_of(learners[:3])
        finally:
            learners[3].send_signal(signal.SIGCONT)
        self.assertRegex(others, r"^accuracy 0\.9\d+ ")
        return others, self.end_of(learners[3])

    def test_a_learner_that_is_paused_holds_nobody_up(self):
        others, lines = self.pause()
        self.assertRegex(lines[0], r"^round \d+ missed$")
        self.assertEqual(lines[-1], others)

    def test_a_paused_learner_misses_no_round_where_late_pushes_count(self):
        """Whether something of it comes late depends on where the pause falls: params.server.state.round_late has the values."""
        _, lines = self.pause("--carry-late")
        self.assertEqual([line for line in lines if "missed" in line], [])
        self.assertRegex(lines[-1], r"^accuracy 0\.[89]\d+ ")

    def test_wrong_options_are_refused(self):
        for words, text in (((), "one address of a server"), (("127.0.0.1:1", "--learner", "4"), "a --learner below --learners"),
                            (("127.0.0.1:1", "--data", "nowhere"), "cannot read nowhere")):
            done = subprocess.run([ROUNDS, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=0)
