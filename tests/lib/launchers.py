"""Launchers of one job as children of a test, and the cases that hold on every registry (integration.run_claim, run_sweep, run_guard, and the
same on etcd)."""
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from etcd_cluster import patience_of
from puppets import CLEAN, MUSTER, PATIENCE_S, PROGRAMS

STEPPER = os.path.join(PROGRAMS, "stepper")
DAY_S = 24 * 3600


def words_of(rank, nodes, count, job, registry, *more, program):
    """The words behind `muster run` for one launcher of a job; a job on one node has no ranks of nodes."""
    place = () if nodes == "1" else ("--nnodes", nodes, "--node-rank", str(rank))
    return (*place, "-n", str(count), "--job", job, "--registry", registry, *more, "--", *program)


class Launcher:
    """`muster run`, maybe inside a network namespace; its output is kept, and can be waited for."""

    def __init__(self, case, *words, inside=(), **variables):
        self.case, self.said, self.news = case, [], threading.Condition()
        # ip netns exec becomes the program: the launcher is our own child
        self.child = subprocess.Popen([*inside, MUSTER, "run", *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
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

    def hear(self, pattern, count=1):
        """The match number `count` of the pattern, once it is there."""
        def matches():
            return list(re.finditer(pattern, self.text()))
        with self.news:
            heard = self.news.wait_for(lambda: len(matches()) >= count or self.said[-1:] == [""], PATIENCE_S)
            self.case.assertTrue(heard and len(matches()) >= count, (pattern, self.text()))
            return matches()[count - 1]

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


class Delay:
    """Stands before a registry. From the moment on at which a launcher sends its record, that ("record") or all that the registry
    answers ("answers") is kept until release()."""

    RECORD = b'"launcher":'

    def __init__(self, case, registry, what):
        host, _, port = registry.removeprefix("http://").rpartition(":")
        self.registry, self.what = (host, int(port)), what
        self.lock, self.is_closed, self.kept = threading.Lock(), False, []
        self.held = threading.Event()  # the record is here, or (answers) the registry has it
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.sockets, self.threads = [], []
        self.go(self.accept)
        case.addCleanup(self.discard)

    def go(self, function, *args):
        self.threads.append(threading.Thread(target=function, args=args, daemon=True))
        self.threads[-1].start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            try:
                far = socket.create_connection(self.registry)
            except OSError:  # the registry is away for a moment: so is this
                near.close()
                continue
            self.sockets += [near, far]
            self.go(self.carry, near, far, self.what == "record")
            self.go(self.carry, far, near, self.what == "answers")

    def carry(self, source, target, may_keep):
        try:
            while data := source.recv(65536):
                with self.lock:
                    is_record = self.RECORD in data and not self.held.is_set()
                    self.is_closed = self.is_closed or is_record
                    if self.is_closed and may_keep:
                        self.kept.append((target, data))
                        if is_record:
                            self.held.set()
                    else:
                        target.sendall(data)
        except OSError:
            pass

    def release(self):
        with self.lock:
            self.is_closed = False
            for target, data in self.kept:
                target.sendall(data)
            self.kept = []

    def discard(self):
        self.end(self.listener)
        self.threads[0].join()  # accept(): the list of sockets grows no more
        for one in self.sockets:
            self.end(one)
        for thread in self.threads:
            thread.join()

    @staticmethod
    def end(one):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        one.close()


class LauncherCase:
    """A test case with a registry, whose address is what open_registry gives."""

    variables, options, ctl_options = {}, (), ()  # what launchers and etcdctl need to be let in

    def setUp(self):
        self.registry = self.open_registry()
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.hurry = os.path.join(where.name, "hurry")  # without this file the workers take their time

    def launch(self, rank=0, *more, nodes="1", count=2, job="one", steps=50, slow=False, host=None, program=STEPPER, registry=None):
        words = words_of(rank, nodes, count, job, registry or self.registry, *self.options, *more,
                         program=(program, str(10000000 if slow else steps)))
        variables = dict(self.variables, **({"STEPPER_HURRY": self.hurry} if slow else {}))
        if host:
            variables["MUSTER_HOST_KEY"] = host
        return Launcher(self, *words, **variables)

    def etcdctl(self, *words):
        return subprocess.run(["etcdctl", "--endpoints", self.registry, *patience_of(words), *self.ctl_options, *words], text=True, capture_output=True, check=True,
                              env=dict(CLEAN, ETCDCTL_API="3"), timeout=PATIENCE_S).stdout.split("\n")

    def keys(self, job):
        return [key for key in self.etcdctl("get", "--prefix", f"/muster/{job}/", "--keys-only") if key]


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

    def test_a_record_that_is_deleted_is_written_again(self):
        """Else another launcher would get in beside this one."""
        if shutil.which("etcdctl") is None:
            self.skipTest("etcdctl is not installed (Debian: etcd-client)")
        first = self.launch(slow=True)
        first.hear("with 2 members")
        own = [key for key in self.keys("one") if "/launchers/" in key]
        self.assertEqual(len(own), 1, own)
        self.etcdctl("del", own[0])
        until = time.monotonic() + PATIENCE_S
        while own[0] not in self.keys("one"):
            self.assertLess(time.monotonic(), until, first.text())
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

    def launch_late(self, what, rank, nodes, job):
        """A launcher whose record is on its way, or in the registry and the launcher does not know it yet."""
        delay = Delay(self, self.registry, what)
        launcher = self.launch(rank, nodes=nodes, job=job, registry=delay.address, slow=True)
        self.assertTrue(delay.held.wait(PATIENCE_S), launcher.text())
        return launcher, delay

    def test_a_launcher_that_hears_late_still_tells_whom_it_refused(self):
        """Both have looked before either has put its record."""
        for rank, nodes, other, said in ((0, "2", 1, "3"), (0, "2", 2, "3"), (2, "3", 0, "2")):
            job = f"late-{rank}-{other}"
            second, second_delay = self.launch_late("record", other, said, job)
            first, first_delay = self.launch_late("answers", rank, nodes, job)
            second_delay.release()
            second.end(2)
            self.assertRegex(second.text(), f"this launcher says --nnodes {said}, that of node rank {rank} .* says --nnodes {nodes}")
            first_delay.release()
            first.hear(rf"pid {second.child.pid} was refused: it says --nnodes {said}, this job has --nnodes {nodes}")
            first.kill()

    def test_a_launcher_that_hears_late_still_answers_who_asks(self):
        for other, nodes, code, said in ((0, "2", 4, "another launcher for node rank 0 was refused: that at .*, pid {};"),
                                         (1, "3", 2, "pid {} was refused: it says --nnodes 3, this job has --nnodes 2")):
            first, delay = self.launch_late("answers", 0, "2", f"asked-{nodes}")
            second = self.launch(other, nodes=nodes, job=f"asked-{nodes}")
            second.hear("waits for the launcher of node rank 0 at .*, which does not answer")
            delay.release()
            second.end(code)
            first.hear(said.format(second.child.pid))
            first.kill()

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


class Sweeps(LauncherCase):
    def look(self):
        """A launcher comes, an hour after the last one."""
        self.etcdctl("del", "/muster-sweep")
        self.launch(job="another").end()

    def age(self, job):
        """The mark of the first look becomes two days old."""
        since, revision = self.etcdctl("get", f"/muster/{job}/ended", "--print-value-only")[0].split()
        self.assertLess(abs(int(since) - time.time()), 3600)
        self.etcdctl("put", f"/muster/{job}/ended", f"{int(since) - 2 * DAY_S} {revision}")

    def test_an_ended_job_is_removed_a_day_after_it_was_seen_so(self):
        self.launch(job="old").end()
        self.assertIn("/muster/old/view", self.keys("old"))
        self.look()
        self.look()  # the mark is not a day old yet
        self.assertIn("/muster/old/view", self.keys("old"))
        self.age("old")
        self.look()
        self.assertEqual(self.keys("old"), [])

    def test_a_job_that_came_back_is_not_removed(self):
        self.launch(job="old").end()
        self.look()
        self.age("old")
        self.launch(job="old").end()
        self.look()
        self.assertIn("/muster/old/view", self.keys("old"))

    def test_a_job_whose_members_are_not_known_to_be_dead_stays(self):
        """Their leases are gone, as after an absence of the registry."""
        first = self.launch(job="alive", slow=True)
        first.hear("with 2 members")
        view = [key for key in self.keys("alive") if key.endswith("view")]
        for name in ("members", "launchers"):
            first.child.send_signal(signal.SIGSTOP)  # nothing is registered again
            self.etcdctl("del", "--prefix", f"/muster/alive/{name}/")
        self.look()
        self.assertEqual([key for key in self.keys("alive") if key.endswith(("view", "ended"))], view)

    def test_a_run_that_can_be_resumed_stays(self):
        with tempfile.TemporaryDirectory() as where:
            directory = os.path.join(where, "run")
            first = self.launch(0, "--resumable", directory, job="later", slow=True)
            first.hear("with 2 members")
            first.kill()
            for key in ("members", "launchers"):
                self.etcdctl("del", "--prefix", f"/muster/later/{key}/")
            for key in [key for key in self.keys("later") if "/dead/" in key]:
                self.etcdctl("del", key)
            self.assertIn("/muster/later/resumable/0", self.keys("later"))
            self.look()
            self.assertNotIn("/muster/later/ended", self.keys("later"))
            again = Launcher(self, "--resume", directory)
            again.hear("taken over")
            again.child.terminate()
            again.end(143)
            self.assertNotIn("/muster/later/resumable/0", self.keys("later"))


class Guarded(LauncherCase):
    """The guard of a killed launcher has to get in by itself, as that did."""

    reads = True  # etcdctl is let in

    def test_the_guard_tells_of_the_dead_and_the_job_begins_anew_on_another_host(self):
        first = self.launch(slow=True, host="a")
        first.hear("with 2 members")
        first.kill()
        if self.reads:
            until = time.monotonic() + PATIENCE_S
            while len([key for key in self.keys("one") if "/dead/" in key]) < 2:
                self.assertLess(time.monotonic(), until, self.keys("one"))
            self.assertEqual({text for text in self.etcdctl("get", "--prefix", "/muster/one/dead/", "--print-value-only") if text},
                             {"SIGKILL with its launcher, step not known"})
        again = self.launch(host="b")  # which cannot look at processes of host a
        again.end()
        self.assertNotIn("does not answer", again.text())
        self.assertNotIn("waits for members of a former launcher", again.text())
