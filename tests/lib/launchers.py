"""Launchers of one job as children of a test, and the cases that hold on every registry (integration.run_claim, run_claim_etcd)."""
import os
import re
import signal
import subprocess
import tempfile
import threading
import time

from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS

STEPPER = os.path.join(PROGRAMS, "stepper")


class Launcher:
    def __init__(self, case, *words, **variables):
        self.case, self.said, self.news = case, [], threading.Condition()
        self.child = subprocess.Popen([MUSTER, "run", *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      env=dict(CLEAN, **variables))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        case.addCleanup(self.discard)

    def read(self):
        for line in self.child.stdout:
            with self.news:
                self.said.append(line)
                self.news.notify_all()
        with self.news:
            self.said.append("")
            self.news.notify_all()

    def text(self):
        return "".join(self.said)

    def hear(self, pattern):
        with self.news:
            heard = self.news.wait_for(lambda: re.search(pattern, self.text()) or self.said[-1:] == [""], PATIENCE_S)
            match = re.search(pattern, self.text())
            self.case.assertTrue(heard and match, (pattern, self.text()))
            return match

    def guard(self):
        with open(f"/proc/{self.child.pid}/task/{self.child.pid}/children", encoding="utf-8") as file:
            for pid in file.read().split():
                with open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
                    if comm.read().strip() == "muster-guard":
                        return int(pid)
        raise AssertionError("the launcher has no guard")

    def kill(self, guard_too=False):
        if guard_too:
            os.kill(self.guard(), signal.SIGKILL)
        self.child.kill()
        self.child.wait()

    def end(self, code=0):
        self.child.wait(timeout=PATIENCE_S)
        self.reader.join()
        self.case.assertEqual(self.child.returncode, code, self.text())

    def discard(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.kill()
        self.child.wait()
        self.reader.join()
        self.child.stdout.close()


class LauncherCase:
    """A test case with a registry, whose address is what open_registry gives."""

    def setUp(self):
        self.registry = self.open_registry()
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.hurry = os.path.join(where.name, "hurry")  # without this file the workers take their time

    def launch(self, rank=0, *more, nodes="1", count=2, job="one", steps=50, slow=False, host=None, program=STEPPER):
        place = () if nodes == "1" else ("--nnodes", nodes, "--node-rank", str(rank))
        variables = {"STEPPER_HURRY": self.hurry} if slow else {}
        if host:
            variables["MUSTER_HOST_KEY"] = host
        return Launcher(self, *place, "-n", str(count), "--job", job, "--registry", self.registry, *more, "--", program,
                        str(10000000 if slow else steps), **variables)


class Places(LauncherCase):
    def test_a_job_whose_launcher_was_killed_begins_anew_at_once(self):
        for _ in range(2):
            first = self.launch(slow=True)
            first.hear("(?s)with 2 members|2 members, ")
            first.kill()
        self.launch().end()

    def test_so_it_does_on_another_host(self):
        """Only the guard can tell there."""
        first = self.launch(slow=True, host="a")
        first.hear("with 2 members")
        first.kill()
        again = self.launch(host="b")
        again.end()
        self.assertNotIn("does not answer", again.text())

    def test_all_launchers_of_a_job_are_killed_and_come_back(self):
        former = [self.launch(rank, nodes="2", slow=True, host=f"host{rank}") for rank in range(2)]
        for launcher in former:
            launcher.hear("with 4 members")
        for launcher in former:
            launcher.kill()
        again = [self.launch(rank, nodes="2", host=f"host{1 - rank}") for rank in range(2)]
        for launcher in again:
            launcher.end()

    def test_a_living_launcher_keeps_its_place(self):
        first = self.launch(slow=True)
        first.hear("with 2 members")
        second = self.launch()
        second.end(4)
        self.assertRegex(second.text(), rf"node rank 0 in job one is held by the launcher at .*\(.*\), pid {first.child.pid}, which lives")
        first.hear(rf"another launcher for node rank 0 was refused: that at .*, pid {second.child.pid};")
        self.assertIsNone(first.child.poll())

    def test_launchers_that_start_at_once_and_disagree_are_told_on_both_sides(self):
        for attempt in range(4):
            pair = [self.launch(0, nodes="2", job=f"at-once-{attempt}", slow=True),
                    self.launch(1, nodes="3", job=f"at-once-{attempt}", slow=True)]
            until = time.monotonic() + PATIENCE_S
            while all(one.child.poll() is None for one in pair) and time.monotonic() < until:
                time.sleep(0.01)
            pair.sort(key=lambda one: one.child.poll() is None)
            pair[0].end(2)
            pair[1].hear(rf"pid {pair[0].child.pid} was refused: it says --nnodes")
            pair[1].kill()

    def test_launchers_that_disagree_are_told_on_both_sides(self):
        first = self.launch(0, nodes="2", slow=True)
        second = self.launch(1, nodes="2", slow=True)
        first.hear("with 4 members")
        for words, said in ((dict(nodes="3", rank=2), ("--nnodes 3", "--nnodes 2")),
                            (dict(nodes="2", rank=1, count=3), ("--nproc-per-node 3", "--nproc-per-node 2"))):
            newcomer = self.launch(**words)
            newcomer.end(2)
            self.assertRegex(newcomer.text(), rf"this launcher says {said[0]}, that of .*, pid \d+, says {said[1]}")
            for old in (first, second):
                old.hear(rf"pid {newcomer.child.pid} was refused: it says {said[0]}, this job has {said[1]}")
        self.assertIsNone(first.child.poll())
